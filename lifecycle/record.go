package lifecycle

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// Type is the Type of the events that store records.
const Type = "eventbus.lifecycle"

const suffix = ".lifecycle"

// Topic returns the name of the topic with the records about events of topic.
func Topic(topic string) string { return topic + suffix }

// A Record describes one step of an event in one group. Its JSON form is stable.
type Record struct {
	State   State     `json:"state"`
	Topic   string    `json:"topic"`
	Group   string    `json:"group"`
	ID      string    `json:"id"`             // of the event
	Type    string    `json:"type,omitempty"` // of the event
	Attempt int       `json:"attempt"`
	Time    time.Time `json:"time"` // when the step was recorded, by the member's clock

	TookMicros  int64 `json:"took_us,omitempty"`      // how long the run took, in microseconds; for Completed, Held, Failed
	DelayMicros int64 `json:"delay_us,omitempty"`     // the time until the event is redelivered, in microseconds; for Retried, Snoozed
	NextAttempt int   `json:"next_attempt,omitempty"` // for Retried
	MaxAttempts int   `json:"max_attempts,omitempty"` // the last attempt for this error, or 0 without a limit; for Retried

	Reason string `json:"reason,omitempty"`      // one of the Reason constants of package eventbus; for DeadLettered, Expired, Discarded
	Error  string `json:"error,omitempty"`       // the text of the error, without the prefix "eventbus: ", cut at 4 KiB
	Class  string `json:"error_class,omitempty"` // the class of the error, as in a dead letter; for Retried, DeadLettered

	// Position is where the record is stored in its topic. [Follow] and [Decode] set it.
	Position string `json:"-"`
}

// A State says which step of an event a [Record] describes.
type State string

// The states. A run is Active, and then Completed, Held or Failed; after a Snooze or a Drop it is
// only Snoozed or Discarded. A failed event is then Retried, DeadLettered, Expired or Discarded. The
// record of a failed run and that of its consequence may come in either order.
const (
	Active       State = "active"        // a run starts
	Completed    State = "completed"     // the handler returned nil, and the event is acknowledged
	Held         State = "held"          // the handler returned nil, but the event is settled elsewhere: by a ManualHandler, whose Ack is not recorded, or already because of a timeout
	Failed       State = "failed"        // the run failed
	Retried      State = "retried"       // the event is redelivered after a delay
	Snoozed      State = "snoozed"       // the handler returned Snooze
	DeadLettered State = "dead-lettered" // the event is in its dead-letter topic
	Expired      State = "expired"       // the event was discarded because its TTL has passed
	Discarded    State = "discarded"     // the event was acknowledged without success
	LeaseLost    State = "lease-lost"    // another member may now have the event
)

// Decode returns the record stored in m. ok is false if m stores some other event.
func Decode(m *backend.Message) (r Record, ok bool, err error) {
	e := eventbus.EventOf(m)
	if e.Type != Type {
		return r, false, nil
	}
	if err := json.Unmarshal(e.Payload, &r); err != nil {
		return r, true, fmt.Errorf("lifecycle: the record at %s of %s: %w", m.Position, m.Topic, err)
	}
	r.Position = m.Position
	return r, true, nil
}

// event returns the event that stores r.
func (r *Record) event(source string) (*eventbus.Event, error) {
	payload, err := json.Marshal(r)
	return &eventbus.Event{Type: Type, Source: source, ContentType: "application/json", Payload: payload}, err
}

// concernsRecord reports whether r is about an event of a records topic, or about a record that is
// elsewhere, such as a record's dead letter.
func (r *Record) concernsRecord() bool { return r.Type == Type || strings.HasSuffix(r.Topic, suffix) }
