package bus

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
)

func scheduleSurvives(e *buslaw.Env) {
	p := e.Peer()
	e.Start()
	began := time.Now()
	var want []string
	for _, i := range []int{2, 0, 1} {
		at(e, e.Bus, began.Add(e.Lease/4+time.Duration(i)*time.Millisecond), &eventbus.Event{ID: fmt.Sprint(i), Key: "k"})
		want = append(want, fmt.Sprint(len(want)))
	}
	e.End()
	other := e.OtherBus(p, eventbus.Options{})
	time.Sleep(e.Lease / 2)
	e.MemberOn(other, "other", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.AwaitDone(len(want), "other")
	if got := ids(e, "other"); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func scheduleShared(e *buslaw.Env) {
	p := e.Peer()
	e.Start()
	other := e.OtherBus(p, eventbus.Options{})
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.MemberOn(other, "other", eventbus.SubscribeOptions{}, buslaw.Succeed)
	const n = 60
	began := time.Now()
	for i := range n {
		b := e.Bus
		if i%2 > 0 {
			b = other
		}
		at(e, b, began.Add(e.Lease*time.Duration(i)/n+e.Lease/4), &eventbus.Event{ID: fmt.Sprint(i)})
	}
	time.Sleep(e.Lease / 2)
	e.End()
	e.AwaitDone(n, "g", "other")
	e.Quiet(e.Soon())
	all := append(ids(e, "g"), ids(e, "other")...)
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != n || len(all) != n {
		e.Failf("%d events came %d times, want %d once", len(once), len(all), n)
	}
}

func scheduleOutage(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	const n = 20
	began := time.Now().Add(e.Lease / 2)
	for i := range n {
		at(e, e.Bus, began.Add(e.Lease*time.Duration(i)/n), &eventbus.Event{ID: fmt.Sprint(i)})
	}
	time.Sleep(e.Lease)
	up := e.Down(e.Backend)
	time.Sleep(e.Lease)
	up()
	e.Await("each event has come", func(r *buslaw.Recorder) bool {
		for i := range n {
			if !r.Handled["g "+fmt.Sprint(i)] {
				return false
			}
		}
		return true
	})
}

func scheduleCut(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	const n = 60
	began := time.Now().Add(e.Lease / 2)
	for i := range n {
		at(e, e.Bus, began.Add(e.Lease*time.Duration(i)/n), &eventbus.Event{ID: fmt.Sprint(i)})
	}
	for range 4 {
		time.Sleep(e.Lease / 3)
		e.Cut(e.Backend)
	}
	allOnce(e, n)
}

func scheduleCrash(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	const n = 20
	due := time.Now().Add(2 * e.Lease)
	for i := range n {
		at(e, e.Bus, due, &eventbus.Event{ID: fmt.Sprint(i)})
	}
	e.Kill()
	allOnce(e, n)
}

// allOnce expects that each of n events has come, and that the topic has stored each one time:
// an event that is handled twice is a redelivered one.
func allOnce(e *buslaw.Env, n int) {
	e.Helper()
	e.Await("each event has come", func(r *buslaw.Recorder) bool {
		for i := range n {
			if !r.Handled["g "+fmt.Sprint(i)] {
				return false
			}
		}
		return true
	})
	positions := map[string]string{}
	for _, h := range e.Recorder.All("g") {
		d := h.Delivery
		if first, ok := positions[d.ID]; ok && first != d.Position && e.Limits.OnceWindow > 0 {
			e.Failf("event %s is stored twice, at %s and %s", d.ID, first, d.Position)
		}
		positions[d.ID] = d.Position
	}
}

func scheduleMiddleware(e *buslaw.Env) {
	var calls atomic.Int64
	marks := func(next eventbus.Publisher) eventbus.Publisher {
		return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
			for _, ev := range events {
				ev.Headers = append(ev.Headers, eventbus.Header{Name: "call", Value: fmt.Sprint(calls.Add(1))})
			}
			return next.Publish(ctx, topic, events...)
		})
	}
	e.Open(eventbus.Options{PublishMiddleware: []eventbus.PublishMiddleware{marks}}, nil)
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	at(e, e.Bus, time.Now().Add(e.Lease/2), &eventbus.Event{ID: "id"})
	e.AwaitDone(1, "g")
	if got := e.Recorder.All("g")[0].Delivery.Headers.Get("call"); got != "1" || calls.Load() != 1 {
		e.Failf("the event has the header of call %q, after %d calls of the middleware, want the first of one", got, calls.Load())
	}
}
