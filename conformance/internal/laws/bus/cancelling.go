package bus

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

func scheduleCancel(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	at(e, e.Bus, time.Now().Add(time.Millisecond), &eventbus.Event{ID: "published"})
	e.AwaitDone(1, "g")
	due := time.Now().Add(e.Lease + e.Soon())
	for _, id := range []string{"kept", "cancelled", "too"} {
		at(e, e.Bus, due, &eventbus.Event{ID: id})
	}
	got, err := e.Bus.CancelScheduled(e.Context(), law.Topic, "cancelled", "unknown", "published", "too")
	e.Must(err)
	if want := []bool{true, false, false, true}; !slices.Equal(got, want) {
		e.Failf("CancelScheduled: got %v, want %v", got, want)
	}
	e.AwaitDone(2, "g")
	e.Quiet(e.Soon())
	if got, want := ids(e, "g"), []string{"published", "kept"}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func scheduleCancelRace(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{Concurrency: 4}, buslaw.Succeed)
	const n = 100
	began := time.Now().Add(e.Lease / 2)
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(i))
		at(e, e.Bus, began.Add(e.Lease*time.Duration(i)/n), &eventbus.Event{ID: all[i]})
	}
	cancelled := map[string]bool{}
	for i := range n {
		time.Sleep(time.Until(began.Add(e.Lease * time.Duration(i) / n)))
		got, err := e.Bus.CancelScheduled(e.Context(), law.Topic, all[i], all[(i+50)%n])
		e.Must(err)
		for k, id := range []string{all[i], all[(i+50)%n]} {
			cancelled[id] = cancelled[id] || got[k]
		}
	}
	left := 0
	for _, id := range all {
		if !cancelled[id] {
			left++
		}
	}
	e.AwaitDone(left, "g")
	e.Quiet(e.Soon())
	for _, id := range ids(e, "g") {
		if cancelled[id] {
			e.Failf("event %s came, of which CancelScheduled said that it never comes", id)
		}
	}
}

func scheduleCancelElsewhere(e *buslaw.Env) {
	p := e.Peer()
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	other := e.OtherBus(p, eventbus.Options{})
	due := time.Now().Add(e.Lease + e.Soon())
	for _, id := range []string{"kept", "cancelled"} {
		at(e, e.Bus, due, &eventbus.Event{ID: id})
	}
	listed := 0
	for _, err := range other.Scheduled(e.Context(), law.Topic) {
		e.Must(err)
		listed++
	}
	got, err := other.CancelScheduled(e.Context(), law.Topic, "cancelled")
	e.Must(err)
	if listed != 2 || !got[0] {
		e.Failf("another process lists %d events and cancels one: %v, want 2 and true", listed, got[0])
	}
	e.AwaitDone(1, "g")
	e.Quiet(e.Soon())
	if got := ids(e, "g"); got[0] != "kept" {
		e.Failf("got %v, want the event that was not cancelled", got)
	}
}
