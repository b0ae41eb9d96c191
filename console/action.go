package console

import (
	"log/slog"
	"strings"
)

// A Verb names a change that a visitor can request.
type Verb string

// The verbs. Only the last four can lose events: Reset and DeleteGroup for one group, Discard and
// DeleteTopic for all.
const (
	Redrive     Verb = "redrive"      // publish the events of dead letters again, for the group that failed
	Edit        Verb = "edit"         // change the event of one dead letter, and redrive it
	Stop        Verb = "stop"         // stop a running Redrive or Discard
	Pause       Verb = "pause"        // pause a group
	Resume      Verb = "resume"       // end the pause of a group
	Bury        Verb = "bury"         // make an event of a group a dead letter, so that the group will not get it again
	Discard     Verb = "discard"      // remove dead letters permanently
	Reset       Verb = "reset"        // let a group start again at another position
	DeleteGroup Verb = "delete-group" // delete a group
	DeleteTopic Verb = "delete-topic" // delete a topic that no group reads, with its events
)

// verbs are the verbs that a form can have.
var verbs = []Verb{Redrive, Edit, Stop, Pause, Resume, Bury, Discard, Reset, DeleteGroup, DeleteTopic}

// An Action is a change that [Options].Allow decides on.
type Action struct {
	Verb  Verb
	Topic string // the dead-letter topic or, for Pause, Resume, Bury, Reset and DeleteGroup, the topic of the group
	Group string // for Pause, Resume, Bury, Reset and DeleteGroup

	Place  string // the position of a single dead letter or, for Bury, of the event; empty: all that Filter matches
	Filter Filter // of the dead letters, if Place is empty

	// Partition is the number of the partition with the event of a Bury. Empty means that Topic has no partitions.
	Partition string

	// DryRun is set if nothing is changed yet: a page is about to show a button for the Verb, or asks
	// for confirmation and counts the dead letters.
	DryRun bool
}

// A Filter selects the dead letters that match all of its fields; a zero field matches all of them.
// Dead letters are matched as the pages show them, after [Options].Redact.
type Filter struct {
	ID, Key, Type string // of the dead letter; ID also matches the ID of its event
	Header, Value string // the name of a header, and its value
	Group         string // the group that failed
	Class         *Class // the class of the dead letter
}

// A Class is what similar dead letters have in common. Every field matches exactly, even an empty one.
type Class struct{ Topic, Group, Reason, ErrorClass, Type string }

// onGroup reports whether v changes a group.
func (v Verb) onGroup() bool {
	return v == Pause || v == Resume || v == Bury || v == Reset || v == DeleteGroup
}

// onLetters reports whether v changes dead letters.
func (v Verb) onLetters() bool { return !v.onGroup() && v != DeleteTopic }

// Loses reports whether v can lose events or dead letters.
func (v Verb) Loses() bool {
	return v == Discard || v == Reset || v == DeleteGroup || v == DeleteTopic
}

// needsConfirmation reports whether a page asks before v changes something, because events may be lost, or
// because many are meant.
func (a *Action) needsConfirmation() bool {
	return a.Verb == Discard || a.Verb == Bury || a.Verb == Reset || a.Verb == DeleteGroup || a.Verb == DeleteTopic || a.Verb == Redrive && a.Place == ""
}

// text says which dead letters f chooses, or is empty if it chooses all. It leaves out the
// value of a header, which may be a secret.
func (f *Filter) text() string {
	var all []string
	add := func(name, value string) {
		if value != "" {
			all = append(all, name+" "+value)
		}
	}
	if c := f.Class; c != nil {
		add("topic", c.Topic)
		add("group", c.Group)
		add("reason", c.Reason)
		add("error class", c.ErrorClass)
		add("type", c.Type)
	}
	add("group", f.Group)
	add("id", f.ID)
	add("key", f.Key)
	add("type", f.Type)
	add("header", f.Header)
	return strings.Join(all, ", ")
}

// filterOf returns a search as the Filter of an Action.
func filterOf(s *search) Filter {
	f := Filter{ID: s.ID, Key: s.Key, Type: s.Type, Header: s.Header, Value: s.Value, Group: s.Group}
	if k := s.Kind; k != nil {
		f.Class = (*Class)(k)
	}
	return f
}

// logAttrs returns the attributes of a log line. It leaves out the value of a header, which may be a secret.
func (a *Action) logAttrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("action", string(a.Verb)), slog.String("topic", a.Topic)}
	f := &a.Filter
	for _, t := range []struct{ name, value string }{
		{"group", a.Group},
		{"place", a.Place},
		{"partition", a.Partition},
		{"id", f.ID},
		{"key", f.Key},
		{"type", f.Type},
		{"header", f.Header},
		{"letters_of", f.Group},
	} {
		if t.value != "" {
			attrs = append(attrs, slog.String(t.name, t.value))
		}
	}
	if f.Value != "" {
		attrs = append(attrs, slog.Bool("value", true))
	}
	if c := f.Class; c != nil {
		attrs = append(attrs, slog.Group("class", "topic", c.Topic, "group", c.Group, "reason", c.Reason, "error_class", c.ErrorClass, "type", c.Type))
	}
	return attrs
}

// title says in a few words which change an action is.
func title(a *Action) string {
	switch {
	case a.Verb == Bury:
		return "Move an event of " + a.Group + " of " + a.Topic + " to dead letters"
	case a.Verb == DeleteTopic:
		return "Delete the topic " + a.Topic
	case a.Verb.onGroup():
		text := map[Verb]string{Pause: "Pause ", Resume: "Resume ", Reset: "Reset ", DeleteGroup: "Delete "}[a.Verb]
		return text + a.Group + " of " + a.Topic
	}
	text := map[Verb]string{Redrive: "Redrive ", Discard: "Discard ", Edit: "Edit and redrive ", Stop: "Stop a job on "}[a.Verb]
	if a.Place != "" {
		return text + "one dead letter of " + a.Topic
	}
	return text + "dead letters of " + a.Topic
}
