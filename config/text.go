package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/pattern"
)

// A text is any text on one line.
type text string

const maxText = 512

func (t *text) parse(s string, _ *field) error {
	switch {
	case len(s) > maxText:
		return fmt.Errorf("longer than %d bytes", maxText)
	case !utf8.ValidString(s) || strings.IndexFunc(s, unicode.IsControl) >= 0:
		return errors.New("has a control character, or is not UTF-8")
	}
	*t = text(s)
	return nil
}

func (*text) noun(*field) string     { return "text" }
func (*text) schema(f *field) schema { return schema{"type": "string", "maxLength": maxText} }
func (*text) form() form             { return words }

// A name is a name of a topic or group.
type name string

const namePattern = `[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*`

func (n *name) parse(s string, _ *field) error {
	if backend.CheckName(s) != nil {
		return errBadName
	}
	*n = name(s)
	return nil
}

var errBadName = fmt.Errorf("a name has letters, digits, '_' and '-', joined by '.', and at most %d bytes", backend.MaxName)

func (*name) noun(*field) string { return "name" }
func (*name) schema(*field) schema {
	return schema{"type": "string", "pattern": "^" + namePattern + "$", "maxLength": backend.MaxName}
}
func (*name) form() form { return words }

// A topicName is the name of a topic, or a pattern, see eventbus.Bus.Subscribe.
type topicName string

func (n *topicName) parse(s string, _ *field) error {
	if pattern.Check(s) != nil {
		return fmt.Errorf("%w; in a pattern a part is * or, at the end, >", errBadName)
	}
	*n = topicName(s)
	return nil
}

func (*topicName) noun(*field) string { return "name or pattern" }
func (*topicName) schema(*field) schema {
	const part = `([A-Za-z0-9_-]+|\*)`
	return schema{"type": "string", "pattern": `^(` + part + `(\.` + part + `)*(\.>)?|>)$`, "maxLength": backend.MaxName}
}
func (*topicName) form() form { return words }

// A secret is a URL that may hold a password. The URL is in a function, so that printing
// the secret cannot show it.
type secret struct{ reveal func() string }

func (s *secret) parse(text string, _ *field) error {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return errors.New("empty")
	case err != nil:
		return errors.New("not a URL (special characters in a password are escaped, such as %40 for @, %2F for /, %3F for ? and %23 for #)")
	case u.Scheme == "":
		return errors.New("a URL has a scheme, such as mem: or redis://host:6379")
	}
	s.reveal = func() string { return text }
	return nil
}

func (*secret) noun(*field) string   { return "URL" }
func (*secret) schema(*field) schema { return schema{"type": "string", "minLength": 1} }
func (*secret) form() form           { return words }

// A setting is a text that the driver interprets.
type setting string

func (s *setting) parse(text string, f *field) error {
	*s = setting(text)
	return nil
}

func (*setting) noun(*field) string { return "setting of the driver" }
func (*setting) schema(*field) schema {
	return schema{"type": []string{"string", "number", "boolean"}}
}
func (*setting) form() form { return anyForm }

// A flag is true or false.
type flag bool

func (b *flag) parse(s string, _ *field) error {
	if s != "true" && s != "false" {
		return errors.New("neither true nor false")
	}
	*b = s == "true"
	return nil
}

func (*flag) noun(*field) string   { return "true or false" }
func (*flag) schema(*field) schema { return schema{"type": "boolean"} }
func (*flag) form() form           { return plain }

// choose returns the index of s among the words of f.
func choose(s string, f *field) (int, error) {
	for i, w := range f.words {
		if s == w {
			return i, nil
		}
	}
	return 0, fmt.Errorf("not one of %s%s", strings.Join(f.words, ", "), nearest.Hint("%s", s, f.words))
}

func oneOf(f *field) schema { return schema{"enum": f.words} }

// An ack is an eventbus.AckMode.
type ack eventbus.AckMode

func (a *ack) parse(s string, f *field) error {
	i, err := choose(s, f)
	*a = ack([]eventbus.AckMode{eventbus.AckOnSuccess, eventbus.AckOnReceive}[i])
	return err
}

func (*ack) noun(f *field) string   { return strings.Join(f.words, ", ") }
func (*ack) schema(f *field) schema { return oneOf(f) }
func (*ack) form() form             { return words }

// A whenFull is an eventbus.WhenFull.
type whenFull eventbus.WhenFull

func (w *whenFull) parse(s string, f *field) error {
	i, err := choose(s, f)
	*w = whenFull([]eventbus.WhenFull{eventbus.WaitWhenFull, eventbus.RejectWhenFull, eventbus.DropNewest, eventbus.DropOldest}[i])
	return err
}

func (*whenFull) noun(f *field) string   { return strings.Join(f.words, ", ") }
func (*whenFull) schema(f *field) schema { return oneOf(f) }
func (*whenFull) form() form             { return words }

// An order is an eventbus.Order.
type order eventbus.Order

func (o *order) parse(s string, f *field) error {
	i, err := choose(s, f)
	*o = order([]eventbus.Order{eventbus.OrderByKey, eventbus.Unordered, eventbus.OrderTotal}[i])
	return err
}

func (*order) noun(f *field) string   { return strings.Join(f.words, ", ") }
func (*order) schema(f *field) schema { return oneOf(f) }
func (*order) form() form             { return words }

// An onFailure is an eventbus.OnFailure.
type onFailure eventbus.OnFailure

func (o *onFailure) parse(s string, f *field) error {
	i, err := choose(s, f)
	*o = onFailure([]eventbus.OnFailure{eventbus.Skip, eventbus.FailAll}[i])
	return err
}

func (*onFailure) noun(f *field) string   { return strings.Join(f.words, ", ") }
func (*onFailure) schema(f *field) schema { return oneOf(f) }
func (*onFailure) form() form             { return words }

// A missed is an eventbus.Missed.
type missed eventbus.Missed

func (m *missed) parse(s string, f *field) error {
	i, err := choose(s, f)
	*m = missed([]eventbus.Missed{eventbus.FireOnce, eventbus.FireNone, eventbus.FireAll}[i])
	return err
}

func (*missed) noun(f *field) string   { return strings.Join(f.words, ", ") }
func (*missed) schema(f *field) schema { return oneOf(f) }
func (*missed) form() form             { return words }

// A group is the name of a group, or eventbus.EachInstance.
type group string

func (g *group) parse(s string, f *field) error {
	if s != eventbus.EachInstance && backend.CheckName(s) != nil {
		return fmt.Errorf("%w; or it is %s", errBadName, eventbus.EachInstance)
	}
	*g = group(s)
	return nil
}

func (*group) noun(*field) string { return "name or (each)" }
func (*group) schema(*field) schema {
	return schema{"type": "string", "pattern": `^(` + namePattern + `|\(each\))$`, "maxLength": backend.MaxName}
}
func (*group) form() form { return words }

// A start reads an eventbus.Start from a configuration: earliest, latest, after POSITION, a time,
// or a duration before the present time, such as "2h ago".
type start eventbus.Start

func (p *start) parse(s string, f *field) error {
	if t, ok := operator.Timestamp(s, time.Now()); ok {
		*p = start(eventbus.StartAt(t))
		return nil
	}
	if position, ok := strings.CutPrefix(s, "after "); ok && strings.TrimSpace(position) != "" {
		*p = start(eventbus.Start(backend.StartAfter(strings.TrimSpace(position))))
		return nil
	}
	i, err := choose(s, f)
	if err != nil {
		return fmt.Errorf("%w Or: after POSITION, a time such as 2026-11-26T08:00:00Z, or 2h ago", err)
	}
	*p = start([]eventbus.Start{eventbus.StartEarliest, eventbus.StartLatest}[i])
	return nil
}

func (*start) noun(f *field) string {
	return strings.Join(f.words, ", ") + ", after POSITION, a time, or 2h ago"
}

func (*start) schema(f *field) schema {
	return schema{"anyOf": []schema{
		oneOf(f), {"type": "string", "pattern": "^after .*[^ ]"}, {"type": "string", "pattern": "^[0-9]{4}-.*T"}, {"type": "string", "pattern": " ago$"},
	}}
}

func (*start) form() form { return words }

// A deadLetter is the name of the topic for events that fail for good. It may also be
// eventbus.DiscardDeadLetters.
type deadLetter string

func (d *deadLetter) parse(s string, f *field) error {
	if s != eventbus.DiscardDeadLetters && backend.CheckName(s) != nil {
		return fmt.Errorf("%w; or it is %s", errBadName, eventbus.DiscardDeadLetters)
	}
	*d = deadLetter(s)
	return nil
}

func (*deadLetter) noun(*field) string { return "name or (discard)" }
func (*deadLetter) schema(*field) schema {
	return schema{"type": "string", "pattern": `^(` + namePattern + `|\(discard\))$`, "maxLength": backend.MaxName}
}
func (*deadLetter) form() form { return words }
