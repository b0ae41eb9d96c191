// Package letter contains the headers of dead letters, and of events that were redriven.
package letter

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed41896749/eventbus/backend"
)

// ReservedPrefix begins the names of headers that only the bus may set.
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

// The headers of an event that the engine or a dead letter knows.
const (
	Expiry = "ce-expirytime" // when the event expires
	Retry  = "ce-retry"      // how the event is retried
)

const (
	eventRetry = deadPrefix + "retry" // keeps the Retry header of the event in a dead letter
	first      = deadPrefix + "was-"  // prefixes the fields of the first dead letter in a dead letter of a dead letter
)

// Shelve changes the headers of an event into those of its dead letter. It removes Expiry, because
// dead letters don't expire, and renames Retry, because that rule is for the event and must not
// apply to the dead letter.
func Shelve(dead *backend.Message) {
	dead.Headers.Del(Expiry)
	if rule, ok := dead.Headers.Lookup(Retry); ok {
		dead.Headers.Del(Retry)
		Set(dead, eventRetry, rule)
	}
}

// A Failure says why an event became the dead letter of a group.
type Failure struct {
	Reason, Error, Class, Stack string // empty if there is none
	Attempts                    int    // 0 if unknown
	Topic, Group                string
	Last                        time.Time
}

// Of returns the dead letter of m, whose ID is the ID of its event. It has the payload and the
// headers of m, and headers that describe the failure and the origin. The caller sets its Topic and
// ID and then calls [Shorten].
func Of(m *backend.Message, f *Failure) *backend.Message {
	dead := &backend.Message{Key: m.Key, Headers: Carried(m), Payload: m.Payload}
	Shelve(dead)
	Set(dead, Reason, f.Reason)
	Set(dead, Error, f.Error)
	Set(dead, ErrorClass, f.Class)
	Set(dead, Stack, f.Stack)
	if f.Attempts > 0 {
		Set(dead, Attempts, strconv.Itoa(f.Attempts))
	}
	Set(dead, Topic, f.Topic)
	Set(dead, Group, f.Group)
	Set(dead, ID, m.ID)
	Set(dead, Position, m.Position)
	Set(dead, Redriven, RedriveCount(m))
	Set(dead, LastAttempt, f.Last.UTC().Format(time.RFC3339Nano))
	return dead
}

const maxText = 4 << 10

// Set sets a header of a dead letter, unless value is "". It turns an error into one line of at
// most 4 KiB, and a stack into one of at most 8 KiB. Other values are kept byte for byte, because a
// redriven event has its original ID.
func Set(m *backend.Message, name, value string) {
	switch name {
	case Error, ErrorClass:
		value = headerText(value, maxText)
	case Stack:
		value = headerText(value, 2*maxText)
	}
	if value != "" {
		m.Headers.Set(name, value)
	}
}

// Shorten cuts the stack of a dead letter, then its error and the class, as far as needed to make
// its size at most limit; 0 means no limit. Otherwise the dead letter of an event as large as the
// backend allows could never be stored.
func Shorten(m *backend.Message, limit int) {
	for _, name := range []string{Stack, Error, ErrorClass} {
		text := m.Headers.Get(name)
		if over := m.Size() - limit; limit > 0 && over > 0 && text != "" {
			m.Headers.Del(name)
			Set(m, name, text[:max(len(text)-over-2, 0)]) // a rune that is cut may become 2 bytes longer
		}
	}
}

// headerText makes s fit into a header: one line of valid UTF-8 of at most limit bytes, with " | "
// in place of line breaks.
func headerText(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(strings.TrimSpace(s), "\n", " | "), "�")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}
