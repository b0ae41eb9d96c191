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

// The headers of an event that change its handling.
const (
	Expiry = "ce-expirytime" // when it expires
	Retry  = "ce-retry"      // how it is retried
)

const shelved = deadPrefix + "retry" // Retry, in a dead letter

// Shelve prepares the headers of an event for a dead letter. A dead letter does not
// expire, and its own handlers retry as they do with other events.
func Shelve(dead *backend.Message) {
	dead.Headers.Del(Expiry)
	if rule, ok := dead.Headers.Lookup(Retry); ok {
		dead.Headers.Del(Retry)
		Set(dead, shelved, rule)
	}
}

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
