package middleware

import (
	"encoding/binary"
	"time"

	"github.com/seed41896749/eventbus"
)

// bound returns the canonical form of the attributes and headers of e that a step, such as
// Sign, protects. Each step gives another text as use, so that no two steps have the same
// form. Each part has its length in front, and a missing header differs from an empty one.
//
// The ID in the form is the ID under which e was published, because a dead letter has
// another ID. The topic is left out, because a dead letter is in another topic.
func bound(use string, e *eventbus.Event, headers ...[]string) []byte {
	b := part(nil, use)
	for _, attribute := range []string{
		e.Headers.Get(idHeader), e.Key, e.Type, e.Source, e.Subject, e.ContentType,
		e.Time.UTC().Format(time.RFC3339Nano),
	} {
		b = part(b, attribute)
	}
	for _, names := range headers {
		for _, name := range names {
			if value, ok := e.Headers.Lookup(name); ok {
				b = part(part(b, name), value)
			}
		}
	}
	return b
}

func part(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// checkID returns an error if the protected ID in the headers of e is not the ID of e. A
// dead letter may differ, because it is stored under another ID than the original event.
func checkID(e *eventbus.Event) error {
	id, ok := e.Headers.Lookup(idHeader)
	if !ok {
		return permanent("lacks the header %s", idHeader)
	}
	if _, dead := eventbus.DeadLetterOf(e); !dead && id != e.ID {
		return permanent("was published under another ID")
	}
	return nil
}
