package eventbustest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// A record is an in-memory backend that keeps a copy of every stored event, because the backend
// itself removes events that every group has settled.
type record struct {
	*inmemory.Backend

	mu     sync.Mutex
	events map[string][]eventbus.Event
}

var _ backend.Backend = (*record)(nil)

func newRecord(b *inmemory.Backend) *record {
	return &record{Backend: b, events: map[string][]eventbus.Event{}}
}

// Unwrap lets backend.As find the in-memory backend.
func (r *record) Unwrap() backend.Backend { return r.Backend }

// Publish stores events and copies them under one lock, so that an event is in the record before a
// handler gets it.
func (r *record) Publish(ctx context.Context, msgs []*backend.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.Backend.Publish(ctx, msgs)
	for i, m := range msgs {
		if backend.ErrorAt(err, i) == nil && !m.Duplicate {
			r.events[m.Topic] = append(r.events[m.Topic], event(m))
		}
	}
	return err
}

func (r *record) published(topic string) []eventbus.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events[topic])
	for i := range events {
		events[i].Headers = slices.Clone(events[i].Headers)
		events[i].Payload = bytes.Clone(events[i].Payload)
		if rule := events[i].Retry; rule != nil {
			own := *rule
			events[i].Retry = &own
		}
	}
	return events
}

// event returns the event stored in m, with a copy of the payload.
func event(m *backend.Message) eventbus.Event {
	e := eventbus.EventOf(m)
	e.Payload = bytes.Clone(e.Payload)
	return e
}

func (r *record) waitIdle(ctx context.Context) error {
	err := r.WaitSettled(ctx)
	if err == nil {
		return nil
	}
	left := r.unsettled(context.WithoutCancel(ctx))
	if len(left) == 0 {
		return fmt.Errorf("eventbustest: wait until idle: %w", err)
	}
	return fmt.Errorf("eventbustest: wait until idle: %w; left: %s", err, strings.Join(left, "; "))
}

// unsettled describes the groups with unsettled events.
func (r *record) unsettled(ctx context.Context) (left []string) {
	topics, _ := r.Topics(ctx)
	for _, topic := range topics {
		groups, _ := r.Groups(ctx, topic)
		for _, group := range groups {
			s, err := r.Stats(ctx, topic, group)
			if err == nil && s.Lag+s.Unacked > 0 {
				left = append(left, fmt.Sprintf("%s/%s with %d members: %d never received, %d held, %d delayed",
					topic, group, s.Members, s.Lag, s.InFlight, s.Delayed))
			}
		}
	}
	return left
}
