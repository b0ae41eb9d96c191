package console

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// A Verb names a change that a visitor of the pages can ask for.
type Verb string

// The verbs. Only the last four can lose events for a group, and Discard and DeleteTopic for all.
const (
	Redrive     Verb = "redrive"      // publish the events of dead letters again, for the group that failed
	Edit        Verb = "edit"         // change the event of one dead letter, and redrive it
	Stop        Verb = "stop"         // end a Redrive or a Discard that is under way
	Pause       Verb = "pause"        // pause a group
	Resume      Verb = "resume"       // end the pause of a group
	Bury        Verb = "bury"         // make an event of a group a dead letter, so that the group does not get it again
	Discard     Verb = "discard"      // remove dead letters for good
	Reset       Verb = "reset"        // let a group begin again elsewhere
	DeleteGroup Verb = "delete-group" // delete a group
	DeleteTopic Verb = "delete-topic" // delete a topic that no group reads, with its events
)

// verbs are the verbs that a form can have.
var verbs = []Verb{Redrive, Edit, Stop, Pause, Resume, Bury, Discard, Reset, DeleteGroup, DeleteTopic}

// An Action is a change for which [Options].Allow decides.
type Action struct {
	Verb  Verb
	Topic string // the dead-letter topic; of Pause, Resume, Bury, Reset and DeleteGroup the topic of the group
	Group string // of Pause, Resume, Bury, Reset and DeleteGroup

	Place  string // the position of the one dead letter, or of the event that Bury means; empty: all that Filter matches
	Filter Filter // of the dead letters, if Place is empty

	// Partition is the number of the partition that has the event of a Bury; empty: Topic has no partitions.
	Partition string

	// DryRun means that the visitor changes nothing yet: a page shows a button for the Verb, or
	// asks before the change and counts the dead letters.
	DryRun bool
}

// A Filter chooses the dead letters that match all of its fields. A zero field matches all letters.
// A letter is matched as the pages show it, after [Options].Redact.
type Filter struct {
	ID, Key, Type string // of the letter, or the ID of its event
	Header, Value string // the name of a header, and its value
	Group         string // the group that failed
	Class         *Class // the class of the letter
}

// A Class is common to dead letters. Each field matches exactly, also if it is empty.
type Class struct{ Topic, Group, Reason, ErrorClass, Type string }

// onGroup reports whether v changes a group.
func (v Verb) onGroup() bool {
	return v == Pause || v == Resume || v == Bury || v == Reset || v == DeleteGroup
}

// onLetters reports whether v changes dead letters.
func (v Verb) onLetters() bool { return !v.onGroup() && v != DeleteTopic }

// Loses reports whether events or letters may be lost by v.
func (v Verb) Loses() bool {
	return v == Discard || v == Reset || v == DeleteGroup || v == DeleteTopic
}

// asks reports whether a page asks before v changes something, because events may be lost, or
// because many are meant.
func (a *Action) asks() bool {
	return a.Verb == Discard || a.Verb == Bury || a.Verb == Reset || a.Verb == DeleteGroup || a.Verb == DeleteTopic || a.Verb == Redrive && a.Place == ""
}

// text says which letters f chooses; empty: all. It leaves out the value of a header, which may be a
// secret.
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

// log returns the attributes of a log line. It leaves out the value of a header, which may be a secret.
func (a *Action) log() []slog.Attr {
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

// errNotAllowed is the error of a visitor whose action Options.Allow refuses. It says nothing of
// the reason, which may be a secret and stands in the log.
var errNotAllowed = errors.New("you may not do that")

// allow returns an error unless the visitor of r may do a.
func (c *console) allow(r *http.Request, a Action) error {
	if c.changes == nil {
		return errNotAllowed
	}
	if err := c.changes.allow(r, a); err != nil {
		if !a.DryRun {
			c.changes.tell(r.Context(), slog.LevelWarn, "console: refused", c.changes.visitor(r), &a, slog.Any("error", err))
		}
		return errNotAllowed
	}
	return nil
}

// offers reports whether a page of c offers the action a, with a verb, to the visitor of r.
func offers(c *console, r *http.Request, a Action, v Verb) bool {
	a.Verb, a.DryRun = v, true
	return c.changes != nil && c.changes.supports(v) == nil && c.allow(r, a) == nil
}

// A permit says which buttons a page shows to its visitor, and why it lacks the others.
type permit struct {
	Token       string
	Refused     []Verb // Options.Allow refuses them to this visitor
	Unsupported []Verb // the backend lacks them
	can         map[Verb]bool
}

// Can reports whether a page shows the button of a verb.
func (p *permit) Can(verb string) bool { return p.can[Verb(verb)] }

// permit returns the permit for the action a with each of these verbs. It is nil if the console only
// reads, and for a request of the script, which takes no form from the page.
func (c *console) permit(w http.ResponseWriter, r *http.Request, a Action, verbs ...Verb) *permit {
	if c.changes == nil || isPart(r) {
		return nil
	}
	p := &permit{can: map[Verb]bool{}}
	a.DryRun = true
	for _, v := range verbs {
		a.Verb = v
		switch {
		case c.changes.supports(v) != nil:
			p.Unsupported = append(p.Unsupported, v)
		case c.allow(r, a) != nil:
			p.Refused = append(p.Refused, v)
		default:
			p.can[v] = true
		}
	}
	if len(p.can) > 0 {
		p.Token = c.changes.tokens.issue(w, r)
	}
	return p
}

// supports returns an error if the backend certainly cannot do v.
func (c *changes) supports(v Verb) error {
	var ok bool
	switch v {
	case Pause, Resume:
		_, ok = backend.As[backend.Pauser](c.backend)
	case Reset, DeleteGroup, DeleteTopic:
		_, ok = backend.As[backend.Admin](c.backend)
	default:
		_, reads := backend.As[backend.Reader](c.backend)
		_, removes := backend.As[backend.Remover](c.backend)
		_, settles := backend.As[backend.Settler](c.backend)
		ok = reads && removes && (settles || v != Bury)
	}
	if ok {
		return nil
	}
	return errors.ErrUnsupported
}
