package bus

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// stayLaws are about lasting faults: a delay that is always zero, acknowledgements that fail,
// and leases that expire in the meantime.
var stayLaws = []law.Law{
	{
		ID: "B.T13", Name: "redelivery-floor", Promise: "an event that keeps asking for immediate redelivery waits at least 10 ms before each run, and 50 ms after many",
		Needs: []law.Need{law.NeedDelayer}, Faults: []string{"bus-retries-late"}, Uncounted: true,
		Test: buslaw.On(redeliveryFloor),
	},
	{
		ID: "B.L12", Name: "acked-elsewhere-here", Promise: "once an event's acknowledgement is confirmed, another receipt of the event in the same member does not run",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-runs-twice"}, Again: true,
		Test: buslaw.On(ackedBeforeReceipt),
	},
	{
		ID: "B.S15", Name: "settling-fails", Promise: "if acknowledgements fail for longer than a lease, State and Ready show it with the reason until they succeed",
		Faults: []string{"bus-never-ready"}, Again: true,
		Test: buslaw.On(settlingFails),
	},
}

// redeliveryFloor measures the time between the runs of events that ask for redelivery at
// once. It bounds each time from above too, because the floor is a floor.
func redeliveryFloor(e *buslaw.Env) {
	const runs, floor, most = 15, 10 * time.Millisecond, 50 * time.Millisecond
	e.Start()
	answers := map[string]func() error{
		"snooze zero":          func() error { return eventbus.Snooze(0) },
		"snooze past":          func() error { return eventbus.Snooze(-time.Second) },
		"retry after zero":     func() error { return eventbus.RetryAfter(buslaw.ErrBroken, 0) },
		"retry after the past": func() error { return eventbus.RetryAfter(buslaw.ErrBroken, -time.Second) },
		"retry delay zero":     func() error { return buslaw.ErrBroken },
	}
	var mu sync.Mutex
	calls := map[string]int{}
	o := eventbus.SubscribeOptions{Concurrency: 16, Retry: eventbus.Retry{
		MaxAttempts: -1, Delay: func(*eventbus.Delivery, error) time.Duration { return 0 },
	}}
	e.Member("g", o, func(_ context.Context, d *eventbus.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if calls[d.ID]++; calls[d.ID] < runs {
			return answers[strings.TrimRight(d.ID, " 12")]()
		}
		return nil
	})
	for answer := range answers {
		e.PublishEvents(&eventbus.Event{ID: answer + " 1"}, &eventbus.Event{ID: answer + " 2"})
	}
	e.AwaitDone(2*len(answers), "g")
	last := map[string]buslaw.HandlerRun{}
	nth := map[string]int{}
	for _, h := range e.Recorder.All("g") {
		id := h.Delivery.ID
		nth[id]++
		if nth[id] > 1 {
			least := floor
			if nth[id] == runs {
				least = most
			}
			if got := h.Began.Sub(last[id].Ended); got < least-law.Tick || got > most+e.Soon() {
				e.Failf("%s: run %d began %v after the previous run, want %v to %v or somewhat more", id, nth[id], got, least, most)
			}
		}
		last[id] = h
	}
}

// ackedBeforeReceipt delays the acknowledgement of the event "x" until its lease has expired
// and the member has received it again. In the meantime the only handler is busy.
func ackedBeforeReceipt(e *buslaw.Env) {
	held := &holdingAcks{id: "x", release: make(chan struct{}), again: make(chan struct{}), acked: make(chan struct{})}
	e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
		held.Backend = b
		return held
	})
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	e.Cleanup(free)
	o := eventbus.SubscribeOptions{Lease: min(e.Lease, 3*time.Second)} // shorter than the bus waits for one Ack
	e.Member("g", o, func(_ context.Context, d *eventbus.Delivery) error {
		if d.ID == "y" && d.Attempt <= 1 {
			<-release
		}
		return nil
	})
	e.PublishEvents(&eventbus.Event{ID: "x"})
	e.AwaitDone(1, "g")
	e.PublishEvents(&eventbus.Event{ID: "y"})
	e.AwaitRuns(2, "g")
	buslaw.Wait(e, held.again, "the event is received again")
	time.Sleep(law.Hitch) // the receipt reaches the bus
	close(held.release)
	buslaw.Wait(e, held.acked, "the acknowledgement is confirmed")
	time.Sleep(law.Hitch) // the confirmation reaches the bus
	free()
	e.Await("the other event is handled", func(r *buslaw.Recorder) bool { return r.Handled["g y"] })
	time.Sleep(e.Soon())
	x := 0
	for _, h := range e.Recorder.All("g") {
		if h.Delivery.ID == "x" {
			x++
		}
	}
	if x != 1 {
		e.Failf("the event ran %d times, want once: its acknowledgement was confirmed before its second run\nrecorded: %s", x, e.Recorder.Summary())
	}
}

// settlingFails breaks acknowledgements alone, so the member reads and runs events. It has two
// rounds, with a few events and with many.
func settlingFails(e *buslaw.Env) {
	denying := &denyingAcks{}
	e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
		denying.Backend = b
		return denying
	})
	s := e.Member("g", eventbus.SubscribeOptions{Concurrency: 16}, buslaw.Succeed)
	es, published := buslaw.Events(502), 0
	for _, part := range [][]*eventbus.Event{es[:2], es[2:]} {
		denying.broken.Store(true)
		e.PublishEvents(part...)
		for _, ev := range part {
			e.Await("event "+ev.ID+" is handled", func(r *buslaw.Recorder) bool { return r.Handled["g "+ev.ID] })
		}
		awaitReady(e, "while acknowledgements are denied", func(err error) bool {
			return err != nil && strings.Contains(err.Error(), backend.ErrDenied.Error())
		})
		if state, err := s.State(); state == observer.Running || !errors.Is(err, backend.ErrDenied) {
			e.Failf("got state %s and error %v while acknowledgements are denied, want another state, and their error", state, err)
		}
		denying.broken.Store(false)
		published += len(part)
		for end := time.Now().Add(e.Patience()); denying.confirmed.Load() < int64(published) && time.Now().Before(end); {
			time.Sleep(law.Tick) // without an extension, leases have expired, and events are redelivered
		}
		awaitReady(e, "after acknowledgements were denied", func(err error) bool { return err == nil })
		if state, err := s.State(); state != observer.Running {
			e.Failf("got state %s and error %v, want %s: acknowledgements succeed again", state, err, observer.Running)
		}
	}
	e.Settled("g")
}
