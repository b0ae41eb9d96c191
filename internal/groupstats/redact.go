package groupstats

import (
	"slices"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/partition"
)

// Redact removes secrets from an event of a topic before an operator sees it. It may change the event and its headers and
// replace the payload, but must not modify the bytes of the payload. Nil removes nothing.
type Redact func(topic string, e *eventbus.Event)

// topicOf returns the topic of a message, as the program calls it: the topic of a partition, and the
// topic in which a scheduled event is published.
func topicOf(m *backend.Message) string {
	topic := later.Of(m)
	if of, _, ok := partition.Cut(topic); ok {
		return of
	}
	return topic
}

// EventOf returns the event that m stores, redacted. If r panics, the event has only its position.
func (r Redact) EventOf(m *backend.Message) (e eventbus.Event) {
	stored := eventbus.EventOf(m)
	if r == nil {
		return stored
	}
	defer func() {
		if recover() != nil {
			e = eventbus.Event{Position: stored.Position, Type: "(the Redact function has panicked)"}
		}
	}()
	e = stored
	e.Headers = slices.Clone(e.Headers)
	r(topicOf(m), &e)
	e.Position = stored.Position
	return e
}
