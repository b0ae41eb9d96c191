package bus

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// Short names for the types of observer events.
type (
	deadLettered = observer.DeadLettered
	discarded    = observer.Discarded
	leaseLost    = observer.LeaseLost
	stateChanged = observer.StateChanged
)

// leaseLaws are about leases that the bus extends, and leases that it loses.
var leaseLaws = []law.Law{
	{
		ID: "B.L01", Name: "long-handler", Promise: "a handler may run for many leases, and no other member gets its event meanwhile",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"extend-ignored"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			long := func(context.Context, *eventbus.Delivery) error {
				time.Sleep(3 * e.Lease)
				return nil
			}
			for range 3 { // the third member is idle, and would get an event whose lease expires
				e.Member("g", eventbus.SubscribeOptions{}, long)
			}
			e.PublishEvents(buslaw.Events(2)...)
			e.AwaitDone(2, "g")
			e.Quiet(e.Lease + e.Soon())
			once(e, "g")
		}),
	},
	{
		ID: "B.L02", Name: "prefetch-ages", Promise: "an event waiting for a busy handler is never taken over unnoticed: it either keeps its lease or is given back without using an attempt",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"delay-inverts-refunds"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			var slow atomic.Bool
			for range 2 { // two members, because the second one gets an event if the first one loses its lease
				e.Member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
					if slow.Load() {
						time.Sleep(e.Lease / 4)
					}
					if e.Limits.Refund && d.Attempt != 1 {
						e.Failf("event %s is handled at attempt %d, want 1", d.ID, d.Attempt)
					}
					return nil
				})
			}
			e.PublishEvents(buslaw.Events(500)...) // these runs are quick, so the bus may prefetch many events afterwards
			e.AwaitDone(500, "g")
			slow.Store(true)
			es := buslaw.Events(520)[500:]
			e.PublishEvents(es...)
			e.AwaitDone(520, "g")
			once(e, "g")
		}),
	},
	{
		ID: "B.L11", Name: "fair-share", Promise: "two members with one handler each, in two processes if possible, share ten events whose runs take just under half a lease, in exactly ten runs",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"member-reads-ahead"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			two := e.Bus
			if e.Claims(law.NeedPeer) {
				two = e.OtherBus(e.Peer(), eventbus.Options{})
			}
			work := func(context.Context, *eventbus.Delivery) error {
				time.Sleep(e.Lease * 45 / 100)
				return nil
			}
			e.Member("one", eventbus.SubscribeOptions{}, work)
			e.MemberOn(two, "two", eventbus.SubscribeOptions{}, work)
			e.PublishEvents(buslaw.Events(10)...)
			e.AwaitDone(10, "one", "two")
			e.Quiet(e.Lease + e.Soon())
			e.CheckHistory("g")
			// A member may get its first event by chance. It gets a second event only if
			// the other member left events in the backlog. Usually each member gets five
			// events, but on a busy machine a member may be late.
			if one, two := len(e.Recorder.All("one")), len(e.Recorder.All("two")); one+two != 10 || one < 2 || two < 2 {
				e.Failf("got %d and %d runs, want ten, at least two of them by each\nrecorded: %s", one, two, e.Recorder.Summary())
			}
		}),
	},
	{
		ID: "B.L08", Name: "lease-lost-cancels", Promise: "a handler whose lease cannot be extended is cancelled with cause ErrLeaseLost when the lease expires, and its failure does not affect the next holder",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-contexts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			var broken atomic.Bool
			broken.Store(true)
			e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &unsettling{Backend: b, broken: &broken} })
			e.Member("g", eventbus.SubscribeOptions{}, func(ctx context.Context, d *eventbus.Delivery) error {
				if d.Attempt > 1 {
					return nil
				}
				select {
				case <-ctx.Done():
				case <-time.After(3 * e.Lease):
				}
				broken.Store(false)
				return buslaw.ErrBroken
			})
			start := time.Now()
			e.PublishEvents(&eventbus.Event{ID: "x"})
			e.AwaitDone(1, "g")
			runs := e.Recorder.All("g")
			if cause := runs[0].Cause; !errors.Is(cause, eventbus.ErrLeaseLost) {
				e.Failf("the handler's context had cause %v, want ErrLeaseLost", cause)
			}
			if took := runs[0].Ended.Sub(start); took > e.Lease+time.Second+law.Hitch || took < e.Lease/2 {
				e.Failf("cancelled after %v, want when the lease of %v had passed, at most a second later", took, e.Lease)
			}
			if len(buslaw.AwaitObserved[leaseLost](e, 1)) != 1 || len(buslaw.ObservedOf[observer.Retried](e)) > 0 {
				e.Failf("want one lost lease reported to the observer, and no retry: its failure is the next holder's")
			}
			e.Settled("g")
		}),
	},
	{
		ID: "B.L09", Name: "late-success", Promise: "a handler that succeeds after losing its lease still settles its event",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-fails-late-success"},
		Test: buslaw.On(func(e *buslaw.Env) {
			var broken atomic.Bool
			broken.Store(true)
			e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &unsettling{Backend: b, broken: &broken} })
			began, release := make(chan struct{}), make(chan struct{})
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 2}, func(ctx context.Context, d *eventbus.Delivery) error {
				switch d.Attempt {
				case 1: // loses its lease, but continues and succeeds
					<-ctx.Done()
					<-began
					return nil
				case 2:
					close(began)
				}
				<-release
				return buslaw.ErrBroken
			})
			e.PublishEvents(&eventbus.Event{ID: "x"})
			e.AwaitDone(1, "g")
			broken.Store(false)
			time.Sleep(e.Soon())
			close(release)
			e.Quiet(2*e.Lease + e.Soon())
		}),
	},
	{
		ID: "B.T11", Name: "timeout", Promise: "a handler that runs longer than Timeout is cancelled with a *TimeoutError that matches DeadlineExceeded, and has failed",
		Faults: []string{"bus-ignores-contexts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Timeout: e.Lease / 2}, func(ctx context.Context, d *eventbus.Delivery) error {
				if d.Attempt > 1 {
					return nil
				}
				select {
				case <-ctx.Done():
				case <-time.After(4 * e.Lease):
				}
				return ctx.Err()
			})
			published := time.Now()
			e.PublishEvents(&eventbus.Event{})
			e.AwaitDone(1, "g")
			first := e.Recorder.All("g")[0]
			if _, ok := errors.AsType[*observer.TimeoutError](first.Cause); !ok || !errors.Is(first.Err, context.DeadlineExceeded) {
				e.Failf("got cause %v and error %v, want a TimeoutError and DeadlineExceeded", first.Cause, first.Err)
			}
			// On a busy machine the handler may begin late.
			if since := first.Ended.Sub(published); since < e.Lease/2-law.Tick {
				e.Failf("cancelled %v after it was published, want not before %v", since, e.Lease/2)
			}
			if took := first.Ended.Sub(first.Began); took > e.Lease/2+e.Soon() {
				e.Failf("cancelled after %v, want after %v", took, e.Lease/2)
			}
		}),
	},
}

// misbehave fails in its first four attempts: by an error, a panic, Goexit and a timeout.
// Then it succeeds.
func misbehave(ctx context.Context, d *eventbus.Delivery) error {
	switch d.Attempt {
	case 1:
		return buslaw.ErrBroken
	case 2:
		panic("broken")
	case 3:
		runtime.Goexit()
	case 4:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// exitOnce ends its goroutine at attempt 1, and then succeeds.
func exitOnce(_ context.Context, d *eventbus.Delivery) error {
	if d.Attempt == 1 {
		runtime.Goexit()
	}
	return nil
}
