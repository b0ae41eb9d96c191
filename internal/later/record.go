// Package later keeps events in a log until they are due.
//
// The log of a topic is the topic Topic(topic). It has records of these kinds, and the order
// of the log decides between them:
//
//	event    an event with its due time; a later one with the same ID replaces it
//	move     positions of events that are due now; they can no longer be cancelled
//	cancel   IDs of events that are never to be published
//	entry    a recurring entry; a later one with the same ID replaces it
//	forget   IDs of recurring entries that end
//
// A move that stands in the log before a cancel wins, and a cancel before a move wins. So a
// member first stores the move, then reads the log up to it, and only then publishes the
// events that no earlier record has cancelled or replaced. In the same way a caller that
// cancels reads the log up to its own record, and knows for certain which record was first.
// This needs neither a clock nor a lock. It holds with any number of members, and if processes
// are frozen.
//
// A View (view.go) is the state of a log, as far as it was read. A Mover (mover.go) publishes
// due events. One Mover of a topic works at a time, because it holds a token (token.go). The
// token saves work; it is not needed for the promises.
package later

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
)

// Topic returns the name of the log of a topic.
func Topic(topic string) string { return topic + Suffix }

// tokenTopic returns the name of the topic whose only message is the token of a log.
func tokenTopic(topic string) string { return topic + Suffix + ".token" }

// Of returns the topic of the program to which a message belongs: for a record of a log the topic whose
// log it is, and otherwise the topic of the message.
func Of(m *backend.Message) string {
	if topic, ok := strings.CutSuffix(m.Topic, Suffix); ok && topic != "" && m.Headers.Get(kindName) != "" {
		return topic
	}
	return m.Topic
}

// Suffix ends the name of a log.
const Suffix = ".later"

// The headers of records.
const (
	kindName  = letter.ReservedPrefix + "later"       // the kind of a record
	dueName   = letter.ReservedPrefix + "later-due"   // when an event is due, as RFC 3339
	ttlName   = letter.ReservedPrefix + "later-ttl"   // the TTL of an event, as a number of nanoseconds
	onceName  = letter.ReservedPrefix + "later-once"  // the text that Once remembers when the event is published
	entryName = letter.ReservedPrefix + "later-entry" // the ID of the recurring entry of an event
	madeName  = letter.ReservedPrefix + "later-made"  // the position of the version of the entry that made the event
	planName  = letter.ReservedPrefix + "later-plan"  // the Plan of an entry, as JSON
)

type kind string

const (
	isEvent  kind = "event"
	isMove   kind = "move"
	isCancel kind = "cancel"
	isEntry  kind = "entry"
	isForget kind = "forget"
)

// Schedule turns m, a message for its topic, into the record of an event that is due at a
// time. ttl is the time after the publishing in which the event may be handled; 0: for ever.
// The log must not have the Expiry of the event, because its TTL begins when it is published.
func Schedule(m *backend.Message, at time.Time, ttl time.Duration) {
	headers := make(backend.Headers, 0, len(m.Headers)+4)
	for _, h := range m.Headers {
		if h.Name != letter.Expiry {
			headers = append(headers, h)
		}
	}
	m.Topic, m.Headers = Topic(m.Topic), headers
	m.Headers.Set(kindName, string(isEvent))
	m.Headers.Set(dueName, at.UTC().Format(time.RFC3339Nano))
	if ttl > 0 {
		m.Headers.Set(ttlName, fmt.Sprint(int64(ttl)))
	}
	if m.Once {
		m.Headers.Set(onceName, m.Mark())
	}
	m.Once, m.OnceKey = false, ""
}

// list returns a record whose payload is a list of IDs or positions.
func list(topic string, k kind, texts []string) (*backend.Message, error) {
	payload, err := json.Marshal(texts)
	if err != nil {
		return nil, err
	}
	return &backend.Message{
		Topic: Topic(topic), ID: string(k), Payload: payload, Headers: backend.Headers{{Name: kindName, Value: string(k)}},
	}, nil
}

// listed returns the list of a record; nil if the record is damaged.
func listed(m *backend.Message) (texts []string) {
	_ = json.Unmarshal(m.Payload, &texts)
	return texts
}
