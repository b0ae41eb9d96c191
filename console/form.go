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

// A changeForm is an Action with the details of its form.
type changeForm struct {
	Action
	search      search
	from        backend.Start // where the dead letters begin
	fingerprint string        // of the dead letter at Place (see seen); empty: not known
	before      time.Time     // dead letters whose last attempt is before; zero: all
	rate        float64       // dead letters per second; 0: no bound
	found       string        // how many dead letters the page before has counted
	start       backend.Start // of Reset
	to          string        // start as text; see To
	pause       backend.Pause
	why         string // of Bury
	who         string // the visitor
	edited      url.Values
	job         string // of Stop
}

// errForm is the class of mistakes in a form that the visitor can correct.
var errForm = errors.New("this cannot be done")

func formError(format string, a ...any) error {
	return fmt.Errorf("%w: %w", errForm, fmt.Errorf(format, a...))
}

// parseForm parses a submitted form, or the query of a confirmation page.
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

// parseGroup reads the details of a change to a group.
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
			return formError("the start %w", err)
		}
		if at, ok := form.start.At(); ok {
			form.to = at.Format(time.RFC3339Nano) // a duration would mean another time when the visitor agrees
		}
	case Bury:
		return form.parseBury(v)
	}
	return nil
}

// parseDeadLetters reads the details of a change to dead letters.
func (form *changeForm) parseDeadLetters(v url.Values) error {
	var ok bool
	if form.from, ok = parseStart(v.Get("from")); !ok {
		return formError("%q is not a position", shorten(v.Get("from")))
	}
	if form.Place = v.Get("at"); form.Place == "" {
		form.search = searchOf(v)
		form.Filter = filterOf(&form.search)
		if text := strings.TrimSpace(v.Get("since")); text != "" {
			if form.from, ok = parseSince(text); !ok {
				return formError("%q is not a time", shorten(text))
			}
		}
	}
	if form.fingerprint = v.Get("seen"); len(form.fingerprint) > 2*sha256.Size {
		return formError("the fingerprint of the dead letter is too long")
	}
	if form.Verb == Edit {
		if form.Place == "" {
			return formError("only one dead letter can be edited at a time")
		}
		form.edited = v
	}
	if text := v.Get("before"); text != "" {
		var err error
		if form.before, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return formError("%q is not a time", shorten(text))
		}
	}
	if text := strings.TrimSpace(v.Get("rate")); text != "" {
		var err error
		if form.rate, err = strconv.ParseFloat(text, 64); err != nil || !(form.rate > 0) || form.rate > maxRate {
			return formError("the rate %q is not a number of events per second above 0", shorten(text))
		}
	}
	if form.found = v.Get("found"); len(form.found) > maxFoundText {
		return formError("the number of dead letters is too long")
	}
	return nil
}

const (
	maxRate      = 1e6 // dead letters per second
	maxFoundText = 32  // bytes of a number with its words
)

// To describes where a group starts again.
func (form *changeForm) To() string {
	if position, ok := form.start.After(); ok {
		return "after the position " + position
	}
	return "at " + form.to
}

// Values returns the fields of the form, without the token.
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

// pageURL returns the URL of the page that had the form. It shows the same dead letters, so that a
// further change from there applies to them too.
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

// backURL returns the URL of the page whose form has the fields v, even if they are not a valid form;
// empty: unknown.
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

// matches returns the dead letter that m stores, if the form selects it. The confirmation page counts
// dead letters with matches, and the change selects them with it.
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
		return formError("%q is not the position of an event", shorten(form.Place))
	}
	if text := v.Get("partition"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n >= partition.Most {
			return formError("%q is not a partition", shorten(text))
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
		return formError("%s has %d partitions, whose ownership depends on the group: stop its members, and delete it with eventbus groups delete", form.Topic, n)
	case form.Verb == Reset && after:
		return formError("%s has %d partitions, each with its own positions: give a time", form.Topic, n)
	}
	return nil
}
