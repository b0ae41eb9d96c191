// Package letter has the stored forms of dead letters, and of events that were sent again
// from there.
package letter

import (
	"strings"
	"unicode"

	"github.com/seed41896749/eventbus/backend"
)

// ReservedPrefix begins the names of headers that only the bus sets.
const ReservedPrefix = "eventbus-"

const deadPrefix = ReservedPrefix + "dead-"

// The headers of a dead letter.
const (
	Reason      = deadPrefix + "reason"
	Error       = deadPrefix + "error"
	ErrorClass  = deadPrefix + "error-class"
	Stack       = deadPrefix + "stack"
	Attempts    = deadPrefix + "attempts"
	Topic       = deadPrefix + "topic"
	Group       = deadPrefix + "group"
	ID          = deadPrefix + "id"
	Position    = deadPrefix + "position"
	LastAttempt = deadPrefix + "last-attempt"
	Redriven    = deadPrefix + "redriven"
)

// Expiry is the header that says when an event expires. A dead letter has none, so that
// handlers of dead letters get it, and the event can be redriven.
const Expiry = "ce-expirytime"

const maxText = 4 << 10

// Set gives m a header of a dead letter, unless value is "". It cuts the value to 4 KiB, or
// to 8 KiB for a stack.
func Set(m *backend.Message, name, value string) {
	most := maxText
	if name == Stack {
		most = 2 * maxText
	}
	if value != "" {
		m.Headers.Set(name, headerText(value, most))
	}
}

// headerText makes s fit for a header: one line of valid UTF-8, at most so many bytes,
// with bars in place of line ends.
func headerText(s string, most int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(strings.TrimSpace(s), "\n", " | "), "�")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
