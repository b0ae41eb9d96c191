package presence

import (
	"cmp"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pattern"
	"github.com/seed41896749/eventbus/observer"
)

// Type is the Type of the events that store heartbeats.
const Type = "eventbus.process"

// A Process is a bus of a program, as described by its last heartbeat. Its JSON form is stable.
type Process struct {
	ID      string `json:"id"`      // differs between all processes, and after a restart
	Name    string `json:"name"`    // the instance, or the service with the host and the process ID
	Service string `json:"service"` // Options.Service
	Version string `json:"version,omitempty"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid"`

	Started time.Time     `json:"started"` // when the first heartbeat was written, by the broker's clock
	Written time.Time     `json:"written"` // when the heartbeat was written, by the broker's clock
	Every   time.Duration `json:"every"`   // Options.Every, in nanoseconds

	Subscriptions []Subscription `json:"subscriptions,omitempty"` // sorted by topic and group
	More          int            `json:"more,omitempty"`          // how many subscriptions are left out, because there are too many

	// Silent reports whether the process has written no heartbeat for three times Every: it is
	// dead, stalled, or cannot reach the broker. [Processes] sets it.
	Silent bool `json:"silent,omitempty"`
}

// A Subscription is a subscription of a [Process].
type Subscription struct {
	Topic      string            `json:"topic"`                // as given to Subscribe; several are joined by commas
	Group      string            `json:"group"`                //
	State      string            `json:"state"`                // an observer.State
	Error      string            `json:"error,omitempty"`      // why it is in this state, at most 512 bytes; it may name a server of the broker
	Handlers   int               `json:"handlers"`             // how many may currently run at the same time
	Running    int64             `json:"running"`              // how many are running
	Held       int64             `json:"held"`                 // eventbus.Counts.Held
	Failing    int               `json:"failing"`              // events that are waiting for another attempt
	Events     []Event           `json:"events,omitempty"`     // those of Failing that failed last, at most 5; none if the heartbeat would be too large
	Partitions []int             `json:"partitions,omitempty"` // the partitions that it owns
	Settings   map[string]string `json:"settings"`             // the settings in effect (see [Settings]); DeadLetter is "(topic).dlq" by default
}

// An Event has failed in a process and is waiting for another attempt; see [eventbus.Failing].
type Event struct {
	Topic       string    `json:"topic"`
	ID          string    `json:"id"`
	Key         string    `json:"key,omitempty"`
	Position    string    `json:"position"`
	Attempt     int       `json:"attempt"`                // the one that failed last
	MaxAttempts int       `json:"max_attempts,omitempty"` // 0 means no limit
	Due         time.Time `json:"due"`                    // when the next attempt may begin
	Error       string    `json:"error"`                  // at most 512 bytes
}

const (
	mostSubscriptions = 200
	mostEvents        = 5
	mostNote          = 256 << 10 // bytes
	mostError         = 512       // bytes
	silentAfter       = 3         // times Every

	usualLetters = "(topic).dlq" // the default of the setting DeadLetter
)

// Reads reports whether topic is one of the topics of s or matches one of its patterns.
func (s Subscription) Reads(topic string) bool {
	for t := range strings.SplitSeq(s.Topic, ",") {
		if pattern.Match(t, topic) {
			return true
		}
	}
	return false
}

// thisProcess returns the part of a heartbeat that does not change.
func thisProcess(o Options, id string) Process {
	host, _ := os.Hostname() // without one, the process ID has to do
	return Process{
		ID: id, Name: eventbus.Options{Service: o.Service, Instance: o.Instance}.Process(), Service: o.Service,
		Version: o.Version, Host: host, PID: os.Getpid(), Every: o.Every,
	}
}

// programVersion returns the version of the main module or, if it has none, its revision.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 12)]
		}
	}
	return ""
}

// describe returns the subscriptions of b, and how many more there are.
func describe(b *eventbus.Bus) (all []Subscription, more int) {
	list := b.Subscriptions()
	more = max(0, len(list)-mostSubscriptions)
	for _, s := range list[:len(list)-more] {
		state, err := s.State()
		now, _, _ := s.Handlers()
		counts := s.Counts()
		events, failing := s.Failing()
		d := Subscription{
			Topic: s.Topic(), Group: s.Group(), State: string(state), Handlers: now, Running: counts.Running, Held: counts.Held,
			Failing: failing, Partitions: s.Partitions(), Settings: Settings(s.Options()),
		}
		if dead := d.Settings["DeadLetter"]; dead == "" || dead == s.Topic()+".dlq" { // the same text for a pattern
			d.Settings["DeadLetter"] = usualLetters
		}
		for _, e := range events[:min(len(events), mostEvents)] {
			d.Events = append(d.Events, Event{e.Topic, e.ID, e.Key, e.Position, e.Attempt, e.MaxAttempts, e.Due, e.Error})
		}
		d.Error = cut(observer.ErrorText(err), mostError)
		all = append(all, d)
	}
	return all, more
}

// lasting returns the part of a description that does not change with each event.
func lasting(subscriptions []Subscription) ([]byte, error) {
	all := slices.Clone(subscriptions)
	for i := range all {
		all[i].Running, all[i].Held, all[i].Failing, all[i].Events = 0, 0, 0, nil
	}
	return json.Marshal(all)
}

// message returns the message that stores p, with a payload of at most limit bytes, leaving out
// subscriptions as far as necessary.
func (p *Process) message(limit int) (*backend.Message, error) {
	payload, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if n := len(p.Subscriptions); n > 0 && len(payload) > limit {
		less := *p
		if slices.ContainsFunc(p.Subscriptions, func(s Subscription) bool { return len(s.Events) > 0 }) {
			less.Subscriptions = slices.Clone(p.Subscriptions)
			for i := range less.Subscriptions {
				less.Subscriptions[i].Events = nil
			}
			return less.message(limit)
		}
		less.Subscriptions, less.More = p.Subscriptions[:n/2], p.More+n-n/2
		return less.message(limit)
	}
	return eventbus.MessageOf(Topic, &eventbus.Event{
		ID: p.ID, Type: Type, Source: p.Service, Time: p.Written, ContentType: "application/json", Payload: payload,
	})
}

// isNote reports whether m may be a heartbeat; another program may have published it.
func isNote(m *backend.Message) bool {
	e := eventbus.EventOf(m)
	return e.Type == Type && len(m.Payload) <= mostNote
}

// decode returns the process described by m, and whether m is a heartbeat.
func decode(m *backend.Message) (p Process, ok bool) {
	if !isNote(m) || json.Unmarshal(m.Payload, &p) != nil || p.ID == "" {
		return p, false
	}
	p.Subscriptions = slices.Clone(p.Subscriptions[:min(len(p.Subscriptions), mostSubscriptions)])
	return p, true
}

// A stamp is the part of a heartbeat that says how old it is.
type stamp struct {
	ID      string        `json:"id"`
	Written time.Time     `json:"written"`
	Every   time.Duration `json:"every"`
}

func (p *Process) stamp() *stamp { return &stamp{p.ID, p.Written, p.Every} }

// stampOf returns the stamp of a heartbeat, and whether m is one.
func stampOf(m *backend.Message) (s stamp, ok bool) {
	return s, isNote(m) && json.Unmarshal(m.Payload, &s) == nil && s.ID != ""
}

// patience is how long after its heartbeat a process is not yet Silent. It is bounded, because
// another program may have written any number.
func (s *stamp) patience() time.Duration {
	return silentAfter * min(max(s.Every, time.Second), time.Hour)
}

// age returns the time since the heartbeat. The broker's clock may have been set back since.
func (s *stamp) age(now time.Time) time.Duration { return now.Sub(s.Written).Abs() }

// order sorts by name, and the newest process of a name first.
func (p *Process) order(other *Process) int {
	return cmp.Or(cmp.Compare(p.Name, other.Name), other.Started.Compare(p.Started), cmp.Compare(p.ID, other.ID))
}

// cut returns at most the first n bytes of text.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
