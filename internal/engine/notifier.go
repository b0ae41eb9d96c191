package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A notifier tells events to the observer. It tells events of leases, reads and
// acknowledgements later, by a goroutine of the queue.
type notifier struct {
	now   observer.Observer
	later observer.Observer
	queue *observer.Queue
}

const maxBehind = 4096

func newNotifier(o observer.Observer) *notifier {
	q := observer.Async(o, maxBehind)
	return &notifier{now: observer.Safe(o), later: q.Observer(), queue: q}
}

// close tells the events that are left, unless a hook takes longer than ctx allows. If
// ctx is done, a hook has 100 ms.
func (n *notifier) close(ctx context.Context) {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
		defer cancel()
	}
	_ = n.queue.Wait(ctx)
}

// tell tells e to hook, if there is one.
func tell[E any](hook func(E), e E) {
	if hook != nil {
		hook(e)
	}
}

// call calls a function of the program on the queue's goroutine.
func (n *notifier) call(name string, about observer.About, f func()) {
	n.queue.Call(func() {
		if err := guarded(func() error { f(); return nil }); err != nil {
			n.failed(observer.Panic, about, 1, fmt.Errorf("%s: %w", name, err))
		}
	})
}

func (n *notifier) failed(scope observer.Scope, about observer.About, events int, err error) {
	tell(n.later.Failed, observer.Failed{Scope: scope, About: about, Events: events, Err: err})
}

func (n *notifier) published(msgs []*backend.Message, took time.Duration, err error) {
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
	tell(n.now.Published, p)
}

func (n *notifier) noticed(b backend.Notice) {
	tell(n.later.Noticed, observer.Noticed{Topic: b.Topic, Group: b.Group, Text: b.Text, Err: b.Err})
}
