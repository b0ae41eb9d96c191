package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/batch"
	"github.com/seed41896749/eventbus/observer"
)

// A teller speaks to the observer. What happens on the way of leases, reads and
// acknowledgements is told by a goroutine of the teller's; a hook that panics
// is recovered from.
type teller struct {
	o      observer.Observer
	queue  *batch.Group[func()]
	behind atomic.Int64
	missed atomic.Int64
}

const maxBehind = 4096

func newTeller(o observer.Observer) *teller {
	t := &teller{o: o}
	t.queue = batch.New(maxBehind, 0, func(fs []func()) {
		for _, f := range fs {
			t.behind.Add(-1)
			t.guarded(f)
		}
		if n := t.missed.Swap(0); n > 0 && t.o.Failed != nil {
			t.guarded(func() {
				t.o.Failed(observer.Failed{Scope: observer.Observe, Events: int(n), Err: errMissed})
			})
		}
	})
	return t
}

var errMissed = fmt.Errorf("eventbus: the observer is too slow: events were not told")

// later tells on the teller's own goroutine.
func (t *teller) later(f func()) {
	if t.behind.Add(1) > maxBehind {
		t.behind.Add(-1)
		t.missed.Add(1)
		return
	}
	t.queue.Add(f)
}

// guarded runs f and survives its panic.
func (t *teller) guarded(f func()) {
	defer func() {
		if v := recover(); v != nil {
			t.hookPanicked(v, debug.Stack())
		}
	}()
	f()
}

func (t *teller) hookPanicked(v any, stack []byte) {
	if t.o.Failed == nil {
		return
	}
	defer func() { _ = recover() }() // it may be Failed itself that panics
	t.o.Failed(observer.Failed{Scope: observer.Observe, Err: &PanicError{Value: v, Stack: stack}})
}

// close tells what is left, unless a hook takes longer than ctx allows.
func (t *teller) close(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.queue.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select { // a moment more, as nothing may be left to tell
		case <-done:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tellLater tells e to hook, if there is one.
func tellLater[E any](t *teller, hook func(E), e E) {
	if hook != nil {
		t.later(func() { hook(e) })
	}
}

// tellNow tells e to hook, if there is one, on this goroutine.
func tellNow[E any](t *teller, hook func(E), e E) {
	if hook != nil {
		t.guarded(func() { hook(e) })
	}
}

func (t *teller) failed(scope observer.Scope, about observer.About, events int, err error) {
	tellLater(t, t.o.Failed, observer.Failed{Scope: scope, About: about, Events: events, Err: err})
}

func (t *teller) published(msgs []*backend.Message, took time.Duration, err error) {
	p := observer.Published{Events: len(msgs), Took: took, Err: err}
	for i, m := range msgs {
		p.Topic = m.Topic
		p.Bytes += m.Size()
		if backend.ErrorAt(err, i) == nil {
			p.Stored++
			if m.Duplicate {
				p.Duplicates++
			}
		}
	}
	tellNow(t, t.o.Published, p)
}

func (t *teller) noticed(n backend.Notice) {
	tellLater(t, t.o.Noticed, observer.Noticed{Topic: n.Topic, Group: n.Group, Text: n.Text, Err: n.Err})
}
