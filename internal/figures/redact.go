package figures

import (
	"slices"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// Redact removes secrets from an event of a topic before an operator sees the event. It may
// change the event and its headers, and replace its payload. It must not change the bytes of the payload. Nil removes nothing.
type Redact func(topic string, e *eventbus.Event)

// EventOf returns the event that m stores, redacted. After a panic of r the event has only its
// position.
func (r Redact) EventOf(m *backend.Message) (e eventbus.Event) {
	if r == nil {
		return eventbus.EventOf(m)
	}
	defer func() {
		if recover() != nil {
			e = eventbus.Event{Position: m.Position, Type: "(the Redact function has panicked)"}
		}
	}()
	e = eventbus.EventOf(m)
	e.Headers = slices.Clone(e.Headers)
	r(m.Topic, &e)
	e.Position = m.Position
	return e
}
