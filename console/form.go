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
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
)

// An order is an Action with the details of its form.
type changeForm struct {
	Action
	search      search
	from        backend.Start // where the letters begin
	fingerprint string        // of the letter at Place, see seen; empty: not known
	before      time.Time     // letters whose last attempt is before; zero: all
	rate        float64       // letters per second; 0: no bound
	found       string        // how many letters the page before has counted
	start       backend.Start // of Reset
	to          string        // start as text; see To
	pause       backend.Pause
	why         string // of Bury
	who         string // the visitor
	edited      url.Values
	job         string // of Stop
}

// errForm is the class of errors of a form that a visitor can mend.
var errForm = errors.New("this cannot be done")

func formError(format string, a ...any) error {
	return fmt.Errorf("%w: %w", errForm, fmt.Errorf(format, a...))
}

// parseForm returns the order in a form, or in the query of a page that asks before.
func parseForm(v url.Values) (*changeForm, error) {
	form := &changeForm{Action: Action{Verb: Verb(v.Get("verb")), Topic: v.Get("topic")}}
	if form.Verb == Stop {
		form.job = v.Get("job")
		return form, nil // the job knows the rest
	}
	if !slices.Contains(verbs, form.Verb) {
		return nil, formError("there is no such change")
	}
	if err := backend.CheckName(form.Topic); err != nil {
		return nil, formError("topic %w", err)
	}
	switch {
	case form.Verb.onGroup():
		return form, form.parseGroup(v)
	case form.Verb == DeleteTopic:
		return form, nil
	}
	return form, form.parseDeadLetters(v)
}

// parseGroup reads the details of a change of a group.
func (form *changeForm) parseGroup(v url.Values) (err error) {
	if form.Group = v.Get("name"); backend.CheckName(form.Group) != nil {
		return formError("group %w", backend.CheckName(form.Group))
	}
	switch form.Verb {
	case Pause:
		form.pause.Why = strings.TrimSpace(v.Get("why"))
		if form.pause.Until, err = operator.End(strings.TrimSpace(v.Get("until"))); err != nil {
			return formError("until %w", err)
		}
		if err := form.pause.Check(); err != nil {
			return formError("%w", err)
		}
	case Reset:
		form.to = strings.TrimSpace(v.Get("to"))
		if form.start, err = operator.Start(form.to); err != nil {
			return formError("the place %w", err)
		}
		if at, ok := form.start.At(); ok {
			form.to = at.Format(time.RFC3339Nano) // a duration would mean another time when the visitor agrees
		}
	case Bury:
		return form.parseBury(v)
	}
	return nil
}

// parseDeadLetters reads the details of a change of dead letters.
func (form *changeForm) parseDeadLetters(v url.Values) error {
	var ok bool
	if form.from, ok = parseStart(v.Get("from")); !ok {
		return formError("%q is no place", shorten(v.Get("from")))
	}
	if form.Place = v.Get("at"); form.Place == "" {
		form.search = searchOf(v)
		form.Filter = filterOf(&form.search)
		if text := strings.TrimSpace(v.Get("since")); text != "" {
			if form.from, ok = parseSince(text); !ok {
				return formError("%q is no time", shorten(text))
			}
		}
	}
	if form.fingerprint = v.Get("seen"); len(form.fingerprint) > 2*sha256.Size {
		return formError("the letter is named by too long a text")
	}
	if form.Verb == Edit {
		if form.Place == "" {
			return formError("only one letter can be edited at a time")
		}
		form.edited = v
	}
	if text := v.Get("before"); text != "" {
		var err error
		if form.before, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return formError("%q is no time", shorten(text))
		}
	}
	if text := strings.TrimSpace(v.Get("rate")); text != "" {
		var err error
		if form.rate, err = strconv.ParseFloat(text, 64); err != nil || !(form.rate > 0) || form.rate > maxRate {
			return formError("the rate %q is no number of events a second, more than 0", shorten(text))
		}
	}
	if form.found = v.Get("found"); len(form.found) > maxFoundText {
		return formError("the number of letters is too long")
	}
	return nil
}

const (
	maxRate      = 1e6 // letters per second
	maxFoundText = 32  // bytes of a number with its words
)

// To returns where a group begins again, for people.
func (form *changeForm) To() string {
	if position, ok := form.start.After(); ok {
		return "after the position " + position
	}
	return "at " + form.to
}

// Values returns the order as the fields of a form, without the token.
func (form *changeForm) Values() url.Values {
	v := form.search.values()
	v.Set("verb", string(form.Verb))
	v.Set("topic", form.Topic)
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("name", form.Group)
	set("to", form.to)
	set("from", string(form.from))
	set("at", form.Place)
	set("partition", form.Partition)
	set("found", form.found)
	set("seen", form.fingerprint)
	if !form.before.IsZero() {
		v.Set("before", form.before.Format(time.RFC3339Nano))
	}
	return v
}

// pageURL returns the URL of the page on which the order was given. It shows the same letters, so that the
// next order from there is about them too.
func (form *changeForm) pageURL() string {
	switch {
	case form.Verb.onGroup():
		return groupURL(form.Topic, form.Group)
	case form.Verb == DeleteTopic:
		return topicURL(form.Topic)
	}
	v := form.search.values()
	v.Set("topic", form.Topic)
	v.Set("from", string(form.from))
	if form.Place != "" {
		v.Set("at", form.Place)
		return "event?" + v.Encode()
	}
	return "letters?" + v.Encode()
}

// backURL returns the URL of the page with the form that has the fields v, also if they are no order;
// empty: it is not known.
func backURL(v url.Values) string {
	form := changeForm{Action: Action{Verb: Verb(v.Get("verb")), Topic: v.Get("topic"), Group: v.Get("name")}}
	switch {
	case form.Verb == Stop:
		return jobURL(v.Get("job"))
	case !slices.Contains(verbs, form.Verb):
		return ""
	case !form.Verb.onLetters():
		return form.pageURL()
	}
	form.search, form.Place = searchOf(v), v.Get("at")
	if from, ok := parseStart(v.Get("from")); ok {
		form.from = from
	}
	return form.pageURL()
}

// matches returns the letter that m stores, if the order changes it. The page that asks counts the
// letters by takes, and the change chooses them by it.
func (form *changeForm) matches(r groupstats.Redact, m *backend.Message) (l shownDeadLetter, ok bool) {
	if form.Place != "" && form.Place != m.Position {
		return l, false
	}
	l, ok = deadLetterOf(r, m)
	if ok && form.fingerprint != "" && form.fingerprint != fingerprint(&l.event) {
		return l, false
	}
	if !ok || !form.before.IsZero() && !l.stored.LastAttempt.Before(form.before) {
		return l, false
	}
	return l, form.search.matches(&l.event)
}

// parseBury reads the details of a Bury.
func (form *changeForm) parseBury(v url.Values) error {
	if form.Place = v.Get("at"); form.Place == "" || len(form.Place) > maxPosition {
		return formError("%q is no position of an event", shorten(form.Place))
	}
	if text := v.Get("partition"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n >= partition.Most {
			return formError("%q is no partition", shorten(text))
		}
		form.Partition = strconv.Itoa(n)
	}
	if form.why = strings.TrimSpace(v.Get("why")); len(form.why) > backend.MaxPauseText {
		return formError("the reason is longer than %d bytes", backend.MaxPauseText)
	}
	return nil
}

// sourceTopic returns the topic of the broker that has the event of a Bury.
func (form *changeForm) sourceTopic() string {
	if n, err := strconv.Atoi(form.Partition); err == nil {
		return partition.Topic(form.Topic, n)
	}
	return form.Topic
}

const maxPosition = 256 // bytes of a position

// checkPartitions returns an error if a change cannot be one of n partitions together.
func (form *changeForm) checkPartitions(n int) error {
	switch _, after := form.start.After(); {
	case form.Verb == DeleteGroup:
		return formError("%s has %d partitions, whose owners rest on the group: stop its members, and delete it with eventbus groups delete", form.Topic, n)
	case form.Verb == Reset && after:
		return formError("%s has %d partitions, and each has positions of its own: give a time", form.Topic, n)
	}
	return nil
}
