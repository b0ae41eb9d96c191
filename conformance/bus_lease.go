package conformance

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// Short names for what the observer is told.
type (
	deadLettered = observer.DeadLettered
	discarded    = observer.Discarded
	leaseLost    = observer.LeaseLost
	stateChanged = observer.StateChanged
)

// busLeaseLaws are about keeping leases, and losing them.
var busLeaseLaws = []law{
	{
		id: "B.L01", name: "long-handler", promise: "a handler may run for many leases: its event comes to nobody else",
		needs: []need{needExtender}, saboteurs: []string{"ignores-extends"},
		bus: func(e *busEnv) {
			e.start()
			long := func(context.Context, *eventbus.Delivery) error {
				time.Sleep(3 * e.lease)
				return nil
			}
			for range 3 { // one has nothing to do, and would take what it can
				e.member("g", eventbus.SubscribeOptions{}, long)
			}
			e.publishEvents(events(2)...)
			e.awaitDone(2, "g")
			e.quiet(e.lease + e.soon())
			e.once("g")
		},
	},
	{
		id: "B.L02", name: "prefetch-ages", promise: "what waits for a busy handler comes to nobody else unnoticed: it keeps its lease, or goes back at no attempt's cost",
		needs: []need{needExtender}, saboteurs: []string{"ignores-refunds"},
		bus: func(e *busEnv) {
			e.start()
			var slow atomic.Bool
			for range 2 { // what one reads ahead and does not keep, the other takes
				e.member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
					if slow.Load() {
						time.Sleep(e.lease / 4)
					}
					if e.limits.Refund && d.Attempt != 1 {
						e.failf("event %s is handled at attempt %d, want 1", d.ID, d.Attempt)
					}
					return nil
				})
			}
			e.publishEvents(events(500)...) // a quick past: much may be read ahead
			e.awaitDone(500, "g")
			slow.Store(true)
			es := events(520)[500:]
			e.publishEvents(es...)
			e.awaitDone(520, "g")
			e.once("g")
		},
	},
	{
		id: "B.L11", name: "fair-share", promise: "ten events, two members of one handler each, in two processes if there can be, runs of just under half a lease: ten runs, shared by both",
		needs: []need{needExtender}, saboteurs: []string{"bus-reads-ahead", "bus-takes-all"},
		bus: func(e *busEnv) {
			e.start()
			two := e.bus
			if e.suite.Peer != nil {
				two = e.otherBus(e.peer())
			}
			work := func(context.Context, *eventbus.Delivery) error {
				time.Sleep(e.lease * 45 / 100)
				return nil
			}
			e.member("one", eventbus.SubscribeOptions{}, work)
			e.memberOn(two, "two", eventbus.SubscribeOptions{}, work)
			e.publishEvents(events(10)...)
			e.awaitDone(10, "one", "two")
			e.quiet(e.lease + e.soon())
			e.checkHistory("g")
			// One run may be a member's by chance. With two it came back for more, and
			// the other had left it some. Five each is usual, but on a busy machine a
			// member may come late.
			if one, two := len(e.log.all("one")), len(e.log.all("two")); one+two != 10 || one < 2 || two < 2 {
				e.failf("got %d and %d runs, want ten, at least two of them by each\nrecorded: %s", one, two, e.log.summary())
			}
		},
	},
	{
		id: "B.L08", name: "lease-lost-cancels", promise: "a handler whose lease cannot be kept is cancelled with cause ErrLeaseLost when it has passed, and its failure changes nothing for the next holder",
		needs: []need{needExtender}, saboteurs: []string{"bus-hides-contexts"},
		bus: func(e *busEnv) {
			var broken atomic.Bool
			broken.Store(true)
			e.open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &unsettling{Backend: b, broken: &broken} })
			e.member("g", eventbus.SubscribeOptions{}, func(ctx context.Context, d *eventbus.Delivery) error {
				if d.Attempt > 1 {
					return nil
				}
				select {
				case <-ctx.Done():
				case <-time.After(3 * e.lease):
				}
				broken.Store(false)
				return errBroken
			})
			start := time.Now()
			e.publishEvents(&eventbus.Event{ID: "x"})
			e.awaitDone(1, "g")
			runs := e.log.all("g")
			if cause := runs[0].cause; !errors.Is(cause, eventbus.ErrLeaseLost) {
				e.failf("the handler's context had cause %v, want ErrLeaseLost", cause)
			}
			if took := runs[0].ended.Sub(start); took > e.lease+time.Second+hitch || took < e.lease/2 {
				e.failf("cancelled after %v, want when the lease of %v had passed, at most a second later", took, e.lease)
			}
			if len(awaitTold[leaseLost](e, 1)) != 1 || len(toldOf[observer.Retried](e)) > 0 {
				e.failf("want one lost lease told, and no retry: its failure is the next holder's")
			}
			e.settled("g")
		},
	},
	{
		id: "B.L09", name: "late-success", promise: "a handler that succeeds after its lease was lost still settles its event",
		needs: []need{needExtender}, saboteurs: []string{"bus-fails-late-success"},
		bus: func(e *busEnv) {
			var broken atomic.Bool
			broken.Store(true)
			e.open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &unsettling{Backend: b, broken: &broken} })
			began, release := make(chan struct{}), make(chan struct{})
			e.member("g", eventbus.SubscribeOptions{Concurrency: 2}, func(ctx context.Context, d *eventbus.Delivery) error {
				switch d.Attempt {
				case 1: // loses its lease, goes on, and succeeds
					<-ctx.Done()
					<-began
					return nil
				case 2:
					close(began)
				}
				<-release
				return errBroken
			})
			e.publishEvents(&eventbus.Event{ID: "x"})
			e.awaitDone(1, "g")
			broken.Store(false)
			time.Sleep(e.soon())
			close(release)
			e.quiet(2*e.lease + e.soon())
		},
	},
	{
		id: "B.T11", name: "timeout", promise: "a handler that runs longer than Timeout is cancelled then, with a *TimeoutError that is DeadlineExceeded, and has failed",
		saboteurs: []string{"bus-hides-contexts"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{Timeout: e.lease / 2}, func(ctx context.Context, d *eventbus.Delivery) error {
				if d.Attempt > 1 {
					return nil
				}
				select {
				case <-ctx.Done():
				case <-time.After(4 * e.lease):
				}
				return ctx.Err()
			})
			published := time.Now()
			e.publishEvents(&eventbus.Event{})
			e.awaitDone(1, "g")
			first := e.log.all("g")[0]
			if _, ok := errors.AsType[*eventbus.TimeoutError](first.cause); !ok || !errors.Is(first.err, context.DeadlineExceeded) {
				e.failf("got cause %v and error %v, want a TimeoutError and DeadlineExceeded", first.cause, first.err)
			}
			// A busy machine may let the handler begin later than its time.
			if since := first.ended.Sub(published); since < e.lease/2-tick {
				e.failf("cancelled %v after it was published, want not before %v", since, e.lease/2)
			}
			if took := first.ended.Sub(first.began); took > e.lease/2+e.soon() {
				e.failf("cancelled after %v, want after %v", took, e.lease/2)
			}
		},
	},
}

// misbehave fails in every way before it succeeds.
func misbehave(ctx context.Context, d *eventbus.Delivery) error {
	switch d.Attempt {
	case 1:
		return errBroken
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

// exitOnce ends its goroutine once, then succeeds.
func exitOnce(_ context.Context, d *eventbus.Delivery) error {
	if d.Attempt == 1 {
		runtime.Goexit()
	}
	return nil
}
