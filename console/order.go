package console

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/operator"
)

// An order is an Action with the details of its form.
type order struct {
	Action
	search search
	from   backend.Start // where the letters begin
	seen   string        // of the letter at Place, see seen; empty: not known
	before time.Time     // letters whose last attempt is before; zero: all
	rate   float64       // letters per second; 0: no bound
	found  string        // how many letters the page before has counted
	start  backend.Start // of Reset
	to     string        // start as text; see To
	pause  backend.Pause
	why    string // of Bury
	who    string // the visitor
	edited url.Values
	job    string // of Stop
}

// errForm is the class of errors of a form that a visitor can mend.
var errForm = errors.New("this cannot be done")

func wrong(format string, a ...any) error {
	return fmt.Errorf("%w: %w", errForm, fmt.Errorf(format, a...))
}

// orderOf returns the order in a form, or in the query of a page that asks before.
func orderOf(v url.Values) (*order, error) {
	o := &order{Action: Action{Verb: Verb(v.Get("verb")), Topic: v.Get("topic")}}
	if o.Verb == Stop {
		o.job = v.Get("job")
		return o, nil // the job knows the rest
	}
	if !slices.Contains(verbs, o.Verb) {
		return nil, wrong("there is no such change")
	}
	if err := backend.CheckName(o.Topic); err != nil {
		return nil, wrong("topic %w", err)
	}
	switch {
	case o.Verb.onGroup():
		return o, o.ofGroup(v)
	case o.Verb == DeleteTopic:
		return o, nil
	}
	return o, o.ofLetters(v)
}

// ofGroup reads the details of a change of a group.
func (o *order) ofGroup(v url.Values) (err error) {
	if o.Group = v.Get("name"); backend.CheckName(o.Group) != nil {
		return wrong("group %w", backend.CheckName(o.Group))
	}
	switch o.Verb {
	case Pause:
		o.pause.Why = strings.TrimSpace(v.Get("why"))
		if o.pause.Until, err = operator.End(strings.TrimSpace(v.Get("until"))); err != nil {
			return wrong("until %w", err)
		}
		if err := o.pause.Check(); err != nil {
			return wrong("%w", err)
		}
	case Reset:
		o.to = strings.TrimSpace(v.Get("to"))
		if o.start, err = operator.Start(o.to); err != nil {
			return wrong("the place %w", err)
		}
		if at, ok := o.start.At(); ok {
			o.to = at.Format(time.RFC3339Nano) // a duration would mean another time when the visitor agrees
		}
	case Bury:
		return o.ofBurial(v)
	}
	return nil
}

// ofLetters reads the details of a change of dead letters.
func (o *order) ofLetters(v url.Values) error {
	var ok bool
	if o.from, ok = startOf(v.Get("from")); !ok {
		return wrong("%q is no place", short(v.Get("from")))
	}
	if o.Place = v.Get("at"); o.Place == "" {
		o.search = searchOf(v)
		o.Filter = filterOf(&o.search)
		if text := strings.TrimSpace(v.Get("since")); text != "" {
			if o.from, ok = since(text); !ok {
				return wrong("%q is no time", short(text))
			}
		}
	}
	if o.seen = v.Get("seen"); len(o.seen) > 2*sha256.Size {
		return wrong("the letter is named by too long a text")
	}
	if o.Verb == Edit {
		if o.Place == "" {
			return wrong("only one letter can be edited at a time")
		}
		o.edited = v
	}
	if text := v.Get("before"); text != "" {
		var err error
		if o.before, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return wrong("%q is no time", short(text))
		}
	}
	if text := strings.TrimSpace(v.Get("rate")); text != "" {
		var err error
		if o.rate, err = strconv.ParseFloat(text, 64); err != nil || !(o.rate > 0) || o.rate > mostRate {
			return wrong("the rate %q is no number of events a second, more than 0", short(text))
		}
	}
	if o.found = v.Get("found"); len(o.found) > mostFound {
		return wrong("the number of letters is too long")
	}
	return nil
}

const (
	mostRate  = 1e6 // letters per second
	mostFound = 32  // bytes of a number with its words
)

// To returns where a group begins again, for people.
func (o *order) To() string {
	if position, ok := o.start.After(); ok {
		return "after the position " + position
	}
	return "at " + o.to
}

// Values returns the order as the fields of a form, without the token.
func (o *order) Values() url.Values {
	v := o.search.values()
	v.Set("verb", string(o.Verb))
	v.Set("topic", o.Topic)
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("name", o.Group)
	set("to", o.to)
	set("from", string(o.from))
	set("at", o.Place)
	set("partition", o.Partition)
	set("found", o.found)
	set("seen", o.seen)
	if !o.before.IsZero() {
		v.Set("before", o.before.Format(time.RFC3339Nano))
	}
	return v
}

// page returns the URL of the page on which the order was given. It shows the same letters, so that the
// next order from there is about them too.
func (o *order) page() string {
	switch {
	case o.Verb.onGroup():
		return groupURL(o.Topic, o.Group)
	case o.Verb == DeleteTopic:
		return topicURL(o.Topic)
	}
	v := o.search.values()
	v.Set("topic", o.Topic)
	v.Set("from", string(o.from))
	if o.Place != "" {
		v.Set("at", o.Place)
		return "event?" + v.Encode()
	}
	return "letters?" + v.Encode()
}

// backOf returns the URL of the page with the form that has the fields v, also if they are no order;
// empty: it is not known.
func backOf(v url.Values) string {
	o := order{Action: Action{Verb: Verb(v.Get("verb")), Topic: v.Get("topic"), Group: v.Get("name")}}
	switch {
	case o.Verb == Stop:
		return jobURL(v.Get("job"))
	case !slices.Contains(verbs, o.Verb):
		return ""
	case !o.Verb.onLetters():
		return o.page()
	}
	o.search, o.Place = searchOf(v), v.Get("at")
	if from, ok := startOf(v.Get("from")); ok {
		o.from = from
	}
	return o.page()
}
