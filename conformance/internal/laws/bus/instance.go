package bus

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// instanceLaws are about Options.Instance.
var instanceLaws = []law.Law{
	{
		ID: "B.L13", Name: "restart-waits-for-no-lease", Promise: "after a process that had prefetched a thousand events dies, a restart with the same Instance handles all of them at once and in order",
		Needs: []law.Need{law.NeedInstances, law.NeedExtender}, Faults: []string{"bus-ignores-options", "instance-ignored"}, Uncounted: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			killed := make(chan struct{})
			e.Open(named0, func(b backend.Backend) backend.Backend { return &killable{Backend: b, killed: killed} })
			stuck := make(chan struct{})
			e.Cleanup(func() { close(stuck) })
			o := eventbus.SubscribeOptions{Concurrency: 8, Lease: 20 * e.Lease}
			var runs atomic.Int64
			e.Member("before", o, func(context.Context, *eventbus.Delivery) error {
				if runs.Add(1) > 200 {
					<-stuck
					return buslaw.ErrBroken
				}
				return nil
			})
			es := buslaw.KeyedEvents(1500, 16)
			e.PublishEvents(es[:1000]...)
			e.AwaitRuns(208, "before")
			time.Sleep(e.Soon()) // the rest is prefetched, and the acknowledgements are stored
			close(killed)
			restart(e)
			e.PublishEvents(es[1000:]...)
			start := time.Now()
			e.Member("after", o, buslaw.Succeed)
			e.AwaitDone(1500, "before", "after")
			if took := time.Since(start); took > 10*e.Lease {
				e.Failf("the events were handled after %v, and the leases are of %v: want all at once", took, o.Lease)
			}
			e.CheckHistory("g")
			e.Settled("g")
		}),
	},
	{
		ID: "B.L14", Name: "replaced-ends-for-good", Promise: "a subscription that a later incarnation of its Instance replaces ends for good with ErrReplaced: its handlers are cancelled, and it settles nothing that the later incarnation holds",
		Needs: []law.Need{law.NeedInstances, law.NeedExtender}, Faults: []string{"bus-ignores-options", "instance-ignored", "bus-ignores-contexts"}, Uncounted: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Open(named0, nil)
			o := eventbus.SubscribeOptions{Concurrency: 4, Lease: 20 * e.Lease}
			before := e.Member("before", o, func(ctx context.Context, _ *eventbus.Delivery) error {
				select {
				case <-ctx.Done():
				case <-time.After(10 * e.Lease):
				}
				return buslaw.ErrBroken
			})
			es := buslaw.KeyedEvents(400, 16)
			e.PublishEvents(es[:300]...)
			e.AwaitRuns(4, "before")
			restart(e)
			after := e.Member("after", o, buslaw.Succeed)
			buslaw.Wait(e, before.Done(), "the replaced subscription ends")
			if err := before.Err(); !errors.Is(err, eventbus.ErrReplaced) {
				e.Failf("the replaced subscription ended with error %v, want ErrReplaced", err)
			}
			e.Await("its handlers are cancelled", func(r *buslaw.Recorder) bool { return r.Ended("before") == 4 })
			for _, r := range e.Recorder.All("before") {
				if !errors.Is(r.Cause, eventbus.ErrLeaseLost) {
					e.Failf("a handler's context had cause %v, want ErrLeaseLost", r.Cause)
				}
			}
			e.PublishEvents(es[300:]...)
			e.AwaitDone(400, "after")
			e.Quiet(e.Lease + e.Soon())
			if runs := len(e.Recorder.All("before")); runs != 4 || after.Err() != nil {
				e.Failf("got %d runs of the replaced subscription and error %v of the later one, want 4 and none", runs, after.Err())
			}
			e.CheckHistory("g")
		}),
	},
	{
		ID: "B.L15", Name: "two-members-of-an-instance", Promise: "two subscriptions of one bus with an Instance share a group, and a restart replaces both",
		Needs: []law.Need{law.NeedInstances, law.NeedExtender}, Faults: []string{"bus-ignores-options"}, Uncounted: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Open(named0, nil)
			o := eventbus.SubscribeOptions{Lease: 20 * e.Lease}
			wait := func(ctx context.Context, _ *eventbus.Delivery) error {
				select {
				case <-ctx.Done():
				case <-time.After(10 * e.Lease):
				}
				return buslaw.ErrBroken
			}
			one, two := e.Member("one", o, wait), e.Member("two", o, wait)
			e.PublishEvents(buslaw.Events(100)...)
			e.AwaitRuns(1, "one")
			e.AwaitRuns(1, "two")
			time.Sleep(e.Soon())
			if one.Err() != nil || two.Err() != nil {
				e.Failf("got errors %v and %v, want none: both are members", one.Err(), two.Err())
			}
			restart(e)
			e.Member("after", o, buslaw.Succeed)
			start := time.Now()
			e.AwaitDone(100, "after")
			if took := time.Since(start); took > 10*e.Lease {
				e.Failf("the events were handled after %v, want all at once", took)
			}
			for _, s := range []*eventbus.Subscription{one, two} {
				if buslaw.Wait(e, s.Done(), "the replaced subscription ends"); !errors.Is(s.Err(), eventbus.ErrReplaced) {
					e.Failf("a replaced subscription ended with error %v, want ErrReplaced", s.Err())
				}
			}
		}),
	},
}

var named0 = eventbus.Options{Instance: "shop-0"}

// restart opens the bus of the next incarnation, in a process of its own if there can be one.
func restart(e *buslaw.Env) {
	e.Helper()
	if e.Claims(law.NeedPeer) {
		e.Backend = e.Peer()
	}
	e.Open(named0, nil)
}

// killable is the backend of a process that ends without a warning: from killed on, no call has
// an effect.
type killable struct {
	backend.Backend
	killed chan struct{} // closed by the test
}

func (m *killable) Unwrap() backend.Backend { return m.Backend }

// Close leaves the backend to the restarted process.
func (m *killable) Close() error { return nil }

func (m *killable) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := m.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &killableSource{src, m.killed}, nil
}

type killableSource struct {
	next   backend.Source
	killed chan struct{}
}

var (
	_ backend.Delayer  = (*killableSource)(nil)
	_ backend.Extender = (*killableSource)(nil)
)

// living calls f, unless the process has died.
func (s *killableSource) living(f func() error) error {
	select {
	case <-s.killed:
		return backend.ErrClosed
	default:
		return f()
	}
}

func (s *killableSource) Receive(ctx context.Context, max int, bytes int64) (ds []backend.Delivery, err error) {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-s.killed:
			cancel()
		case <-ended:
		}
	}()
	err = s.living(func() error {
		ds, err = s.next.Receive(reading, max, bytes)
		return err
	})
	if dead := s.living(func() error { return nil }); dead != nil {
		return nil, dead
	}
	return ds, err
}

func (s *killableSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.living(func() error { return s.next.Ack(ctx, ds) })
}

func (s *killableSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	v, ok := backend.As[backend.Delayer](s.next)
	if !ok {
		return errors.ErrUnsupported
	}
	return s.living(func() error { return v.Delay(ctx, ds) })
}

func (s *killableSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	v, ok := backend.As[backend.Extender](s.next)
	if !ok {
		return errors.ErrUnsupported
	}
	return s.living(func() error { return v.Extend(ctx, ds) })
}

// Close does not leave the group, because a process that ends does not.
func (s *killableSource) Close() error { return nil }
