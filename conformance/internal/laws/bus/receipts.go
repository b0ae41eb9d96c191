package bus

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// publishReceipts publishes one Event again and again.
func publishReceipts(e *buslaw.Env) {
	e.Open(eventbus.Options{Service: "shop"}, nil)
	const n = 20
	handled := make(chan eventbus.Event, 2*n)
	_, err := e.Bus.Subscribe(e.Context(), law.Topic, e.Options(eventbus.SubscribeOptions{Group: "g"}), func(_ context.Context, d *eventbus.Delivery) error {
		handled <- d.Event
		return nil
	})
	e.Must(err)
	ev, want := &eventbus.Event{Key: "k"}, map[string]eventbus.Receipt{}
	last := ""
	for range n {
		receipts, err := e.Bus.PublishReceipts(e.Context(), law.Topic, ev)
		e.Must(err)
		r := receipts[0]
		if r.ID == "" || r.Time.IsZero() || r.Duplicate || r.Position <= last {
			e.Failf("got receipt %+v after position %q, want a whole one with a later position", r, last)
		}
		want[r.ID], last = r, r.Position
	}
	if ev.ID != "" || ev.Source != "" || !ev.Time.IsZero() || ev.Position != "" || ev.Key != "k" {
		e.Failf("Publish has changed its event to %+v", ev)
	}
	if len(want) != n {
		e.Failf("got %d IDs, want %d", len(want), n)
	}
	for late := time.After(e.Patience()); len(want) > 0; {
		select {
		case d := <-handled:
			if r := want[d.ID]; d.Source != "shop" || !d.Time.Equal(r.Time) || d.Position != r.Position {
				e.Failf("got source %q, time %v, position %q, want %q and %+v", d.Source, d.Time, d.Position, "shop", r)
			}
			delete(want, d.ID)
		case <-late:
			e.Failf("%d of %d events are not handled", len(want), n)
		}
	}
}
