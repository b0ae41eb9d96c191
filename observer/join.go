package observer

import (
	"reflect"
	"runtime/debug"
)

// IsZero reports whether o has no hooks.
func (o Observer) IsZero() bool { return reflect.ValueOf(o).IsZero() }

// Join returns an Observer whose hooks call the hooks of each of os, in order.
func Join(os ...Observer) Observer {
	var j Observer
	for _, o := range os {
		j = Observer{
			Published:      both(j.Published, o.Published),
			Dropped:        both(j.Dropped, o.Dropped),
			Received:       both(j.Received, o.Received),
			Started:        both(j.Started, o.Started),
			Handled:        both(j.Handled, o.Handled),
			Settled:        both(j.Settled, o.Settled),
			Retried:        both(j.Retried, o.Retried),
			DeadLettered:   both(j.DeadLettered, o.DeadLettered),
			Discarded:      both(j.Discarded, o.Discarded),
			Extended:       both(j.Extended, o.Extended),
			LeaseLost:      both(j.LeaseLost, o.LeaseLost),
			Stuck:          both(j.Stuck, o.Stuck),
			StateChanged:   both(j.StateChanged, o.StateChanged),
			Maintained:     both(j.Maintained, o.Maintained),
			PartitionMoved: both(j.PartitionMoved, o.PartitionMoved),
			Noticed:        both(j.Noticed, o.Noticed),
			Failed:         both(j.Failed, o.Failed),
			Stopped:        both(j.Stopped, o.Stopped),
		}
	}
	return j
}

func both[E any](a, b func(E)) func(E) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(e E) { a(e); b(e) }
}

// Safe returns an Observer that calls the hooks of o, recovers if one panics, and reports the panic
// to o.Failed. If o.Failed panics too, that panic is not reported.
func Safe(o Observer) Observer {
	return wrap(o, func(f func()) {
		defer func() {
			if v := recover(); v != nil && o.Failed != nil {
				defer func() { _ = recover() }() // Failed may panic too
				o.Failed(Failed{Scope: Observe, Err: &PanicError{Where: "observer's hook", Value: v, Stack: debug.Stack()}})
			}
		}()
		f()
	})
}

// wrap returns an Observer with the same hooks as o, each of which hands the call of o's hook to
// call.
func wrap(o Observer, call func(func())) Observer {
	return Observer{
		Published:      wrapped(o.Published, call),
		Dropped:        wrapped(o.Dropped, call),
		Received:       wrapped(o.Received, call),
		Started:        wrapped(o.Started, call),
		Handled:        wrapped(o.Handled, call),
		Settled:        wrapped(o.Settled, call),
		Retried:        wrapped(o.Retried, call),
		DeadLettered:   wrapped(o.DeadLettered, call),
		Discarded:      wrapped(o.Discarded, call),
		Extended:       wrapped(o.Extended, call),
		LeaseLost:      wrapped(o.LeaseLost, call),
		Stuck:          wrapped(o.Stuck, call),
		StateChanged:   wrapped(o.StateChanged, call),
		Maintained:     wrapped(o.Maintained, call),
		PartitionMoved: wrapped(o.PartitionMoved, call),
		Noticed:        wrapped(o.Noticed, call),
		Failed:         wrapped(o.Failed, call),
		Stopped:        wrapped(o.Stopped, call),
	}
}

func wrapped[E any](hook func(E), call func(func())) func(E) {
	if hook == nil {
		return nil
	}
	return func(e E) { call(func() { hook(e) }) }
}
