package eventbus

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/later"
)

// A Recurring is an entry that publishes an event again and again.
type Recurring struct {
	ID    string // names the entry within its topic; at most 480 bytes
	Topic string

	// Every is the time between two events, at least a second. The first event comes one
	// Every after Recur has stored the entry. Either Every or Cron is set.
	Every time.Duration

	// Cron has the times of the events, in the five fields of cron or a descriptor such as
	// "@daily". Times that a change to daylight saving time skips are one hour later, and
	// times that come twice count once.
	Cron string

	// Zone is the time zone of Cron, such as "Europe/Berlin". Default UTC.
	Zone string

	// Missed says which events are published that no process could publish in time, because
	// none ran or the topic was full. Default FireOnce.
	Missed Missed

	// MaxMissed bounds the events of FireAll: the latest ones are published. Default 1,000.
	MaxMissed int

	// Event is copied for each time. The copy has the ID ID+"/"+time, with the time in the
	// form of RFC 3339 in UTC, and this time as Time.
	Event Event
}

// Missed says what happens with the events of a recurring entry that are late. An event counts
// as missed if the following one is due too.
type Missed string

// The values of Recurring.Missed.
const (
	FireOnce Missed = "once" // one event is published for all missed ones
	FireNone Missed = "none" // none
	FireAll  Missed = "all"  // all, at most MaxMissed
)

const (
	maxRecurringID   = 480
	defaultMaxMissed = 1000
)

// Recur stores a recurring entry in the topic r.Topic, or replaces the entry of the same ID.
// An equal entry stays as it is, so that each process can call Recur at its start. A paused
// entry stays paused.
//
// The events of the entry are scheduled one after another, as by [Bus.PublishAt], and with
// the same promises. Exactly one event is published for each time, by the broker's clock, with
// any number of processes. No leader is elected: the log of the topic decides which event
// is published.
func (b *Bus) Recur(ctx context.Context, r Recurring) error {
	if err := r.Check(); err != nil {
		return err
	}
	if err := checkSchedule(b, r.Topic); err != nil {
		return err
	}
	p := r.plan()
	var err error
	if p.Print, err = r.digest(); err != nil {
		return err
	}
	e := r.Event
	e.ID = r.ID
	w := when{entry: func(ctx context.Context, m *backend.Message) error {
		return b.later.Enter(ctx, m, r.ID, p, e.TTL)
	}}
	return publishLater(ctx, b, r.Topic, w, []*Event{&e})
}

func (r *Recurring) plan() later.Plan {
	p := later.Plan{Every: r.Every, Cron: r.Cron, Zone: r.Zone, Missed: later.Missed(cmp.Or(r.Missed, FireOnce)), Max: r.MaxMissed}
	if r.Missed == FireAll {
		p.Max = cmp.Or(p.Max, defaultMaxMissed)
	}
	return p
}

// Check returns the *FieldError with which Recur would refuse r, or nil. It does not check
// the name of the topic.
func (r *Recurring) Check() error {
	field := func(name, reason string) error { return &FieldError{Field: "Recurring." + name, Reason: reason} }
	p := r.plan()
	switch err := p.Check(); {
	case r.ID == "":
		return field("ID", "is empty")
	case len(r.ID) > maxRecurringID:
		return field("ID", fmt.Sprintf("has %d bytes, more than %d", len(r.ID), maxRecurringID))
	case err != nil:
		return &FieldError{Field: "Recurring", Reason: err.Error()}
	case r.Missed != "" && r.Missed != FireOnce && r.Missed != FireNone && r.Missed != FireAll:
		return field("Missed", fmt.Sprintf("is %q, want %q, %q or %q", r.Missed, FireOnce, FireNone, FireAll))
	case r.MaxMissed != 0 && r.Missed != FireAll:
		return field("MaxMissed", "is set, but Missed is not FireAll")
	case r.MaxMissed < 0:
		return field("MaxMissed", "is negative")
	case r.Event.Once != "":
		return field("Event.Once", "is set, but each event has a text of its own")
	}
	if _, err := r.digest(); err != nil {
		return err
	}
	return checkText("Recurring.ID", r.ID)
}

// digest returns a digest of the event as the program gave it. A PublishMiddleware may change
// the event into something else each time, such as a ciphertext.
func (r *Recurring) digest() (string, error) {
	e := r.Event
	e.ID, e.Time = r.ID, time.Unix(0, 0)
	m, err := MessageOf("topic", &e)
	if err != nil {
		if f, ok := errors.AsType[*FieldError](err); ok {
			f.Field = "Recurring.Event." + f.Field
		}
		return "", err
	}
	h := sha256.New()
	for _, text := range []string{m.Key, e.TTL.String(), string(m.Payload)} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	for _, header := range m.Headers {
		_, _ = io.WriteString(h, header.Name+"\n"+header.Value+"\n")
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// EndRecurring ends the recurring entries of topic with these IDs, and reports for each
// whether there was one. An event of an entry that is not due yet is never published.
func (b *Bus) EndRecurring(ctx context.Context, topic string, ids ...string) ([]bool, error) {
	if err := checkSchedule(b, topic); err != nil {
		return make([]bool, len(ids)), err
	}
	ended, err := b.later.Forget(ctx, topic, ids)
	if err != nil {
		return ended, fmt.Errorf("eventbus: end recurring events of %s: %w", topic, err)
	}
	b.engine.WakeMover(topic)
	return ended, nil
}

// PauseRecurring pauses or resumes the recurring entry of topic with this ID. A paused entry
// publishes nothing. After it is resumed, it publishes no event for the time of its pause. If
// there is no such entry, the error matches ErrGone.
func (b *Bus) PauseRecurring(ctx context.Context, topic, id string, paused bool) error {
	if err := checkSchedule(b, topic); err != nil {
		return err
	}
	if err := b.later.Pause(ctx, topic, id, paused); err != nil {
		return fmt.Errorf("eventbus: pause recurring events of %s: %w", topic, err)
	}
	b.engine.WakeMover(topic)
	return nil
}

// A RecurringState is a recurring entry in the broker.
type RecurringState struct {
	Recurring
	Paused bool
	Next   time.Time // when the next event is due; zero if the entry is paused or has no further time
}

// RecurringEntries returns the recurring entries of topic, sorted by ID.
func (b *Bus) RecurringEntries(ctx context.Context, topic string) ([]RecurringState, error) {
	if err := checkSchedule(b, topic); err != nil {
		return nil, err
	}
	v, err := b.later.Look(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("eventbus: recurring events of %s: %w", topic, err)
	}
	var states []RecurringState
	for _, r := range v.Entries() {
		p := r.Plan
		states = append(states, RecurringState{
			Recurring: Recurring{
				ID: r.ID, Topic: topic, Every: p.Every, Cron: p.Cron, Zone: p.Zone, Missed: Missed(p.Missed), MaxMissed: p.Max,
				Event: EventOf(r.Event()),
			},
			Paused: p.Paused, Next: r.Next(),
		})
	}
	return states, nil
}
