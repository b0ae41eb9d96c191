package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A notifier calls the hooks of the observer: Published and Handled on its caller's goroutine, and
// all others on the goroutine of its queue.
type notifier struct {
	now   observer.Observer
	later observer.Observer
	queue *observer.Queue
}

const maxBehind = 4096 // how many hook calls may wait in the queue

func newNotifier(o observer.Observer) *notifier {
	q := observer.Async(o, maxBehind)
	later := q.Observer()
	o.Failed = later.Failed // for a panic of a hook that is called directly
	return &notifier{now: observer.Safe(o), later: later, queue: q}
}

// close reports that the bus has stopped with err, after everything that is waiting in the queue.
// It waits until the queue is empty or ctx is done; if ctx is done already, it waits for at most
// 100 ms.
func (n *notifier) close(ctx context.Context, err error) {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
		defer cancel()
	}
	_ = n.queue.Wait(ctx) // a full queue would drop the last call
	notify(n.later.Stopped, observer.Stopped{Err: err})
	_ = n.queue.Wait(ctx)
}

// notify calls hook with e, unless hook is nil.
func notify[E any](hook func(E), e E) {
	if hook != nil {
		hook(e)
	}
}

// call calls f, a function of the program, on the queue's goroutine. If f panics, call reports the
// panic to the observer's hook Failed, with name and about.
func (n *notifier) call(name string, about observer.About, f func()) {
	n.queue.Call(func() {
		if err := guarded(func() error { f(); return nil }); err != nil {
			n.failed(observer.Panic, about, 1, fmt.Errorf("%s: %w", name, err))
		}
	})
}

func (n *notifier) failed(scope observer.Scope, about observer.About, events int, err error) {
	notify(n.later.Failed, observer.Failed{Scope: scope, About: about, Events: events, Err: err})
}

func (n *notifier) published(topic string, msgs []*backend.Message, took time.Duration, err error) {
	p := observer.Published{Topic: topic, Events: len(msgs), Took: took, Err: err}
	for i, m := range msgs {
		p.Bytes += m.Size()
		if backend.ErrorAt(err, i) == nil {
			p.Stored++
			if m.Duplicate {
				p.Duplicates++
			}
		}
	}
	notify(n.now.Published, p)
}

// dropped reports how many of msgs, all for topic, were dropped, and returns their number.
func (n *notifier) dropped(topic string, msgs []*backend.Message, err error) int {
	d := observer.Dropped{Topic: topic, Err: ErrDropped}
	for i, m := range msgs {
		if errors.Is(backend.ErrorAt(err, i), ErrDropped) {
			d.Events++
			d.Bytes += m.Size()
		}
	}
	notify(n.later.Dropped, d)
	return d.Events
}

func (n *notifier) noticed(b backend.Notice) {
	notify(n.later.Noticed, observer.Noticed{Topic: b.Topic, Group: b.Group, Text: b.Text, Err: b.Err})
}

func (s *Subscription) notifyLost(h *Hold, run any, running bool, why error) {
	s.counts.leasesLost.Add(1)
	if why == nil {
		why = fmt.Errorf("%w: it was not extended for %v", backend.ErrLeaseLost, s.Lease)
	}
	notify(s.notifier.later.LeaseLost, observer.LeaseLost{
		About: s.aboutHold(h, run), Running: running, Held: time.Duration(s.instant(time.Now()) - h.Arrived()), Err: why,
	})
}

func (s *Subscription) discarded(about observer.About, reason string, err error) {
	s.counts.discarded.Add(1)
	notify(s.notifier.later.Discarded, observer.Discarded{About: about, Reason: reason, Err: err})
}
