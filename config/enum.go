package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/internal/operator"
)

// An enum is one of the values of an enum of package eventbus. The file has the text that
// T.String returns, so a new value of T needs no change here.
type enum[T textual] struct{ value T }

type textual interface {
	~uint8
	fmt.Stringer
}

// textsOf returns the texts of the values of T, which are numbered from 0. A number without a
// value prints as itself.
func textsOf[T textual]() (texts []string) {
	for i := 0; ; i++ {
		text := T(i).String()
		if text == strconv.Itoa(i) {
			return texts
		}
		texts = append(texts, text)
	}
}

func (e *enum[T]) parse(s string, _ *field) error {
	i, err := choose(s, textsOf[T]())
	e.value = T(i) //nolint:gosec // an index of a few texts
	return err
}

func (*enum[T]) noun(*field) string   { return strings.Join(textsOf[T](), ", ") }
func (*enum[T]) schema(*field) schema { return oneOf(textsOf[T]()) }
func (*enum[T]) style() style         { return textStyle }

// choose returns the index of s among texts.
func choose(s string, texts []string) (int, error) {
	for i, text := range texts {
		if s == text {
			return i, nil
		}
	}
	return 0, fmt.Errorf("not one of %s%s", strings.Join(texts, ", "), nearest.Hint("%s", s, texts))
}

func oneOf(texts []string) schema { return schema{"enum": texts} }

// A missed is an eventbus.Missed.
type missed eventbus.Missed

var missedTexts = []string{string(eventbus.FireOnce), string(eventbus.FireNone), string(eventbus.FireAll)}

func (m *missed) parse(s string, _ *field) error {
	i, err := choose(s, missedTexts)
	*m = missed(missedTexts[i])
	return err
}

func (*missed) noun(*field) string   { return strings.Join(missedTexts, ", ") }
func (*missed) schema(*field) schema { return oneOf(missedTexts) }
func (*missed) style() style         { return textStyle }

// A start reads an eventbus.Start from a configuration: earliest, latest, after POSITION, a time,
// or a time before now, such as "2h ago".
type start eventbus.Start

var startTexts = []string{"earliest", "latest"}

func (p *start) parse(s string, f *field) error {
	if t, ok := operator.Timestamp(s, time.Now()); ok {
		*p = start(eventbus.StartAt(t))
		return nil
	}
	if position, ok := strings.CutPrefix(s, "after "); ok && strings.TrimSpace(position) != "" {
		*p = start(eventbus.Start(backend.StartAfter(strings.TrimSpace(position))))
		return nil
	}
	i, err := choose(s, startTexts)
	if err != nil {
		return fmt.Errorf("%w Or: after POSITION, a time such as 2026-11-26T08:00:00Z, or 2h ago", err)
	}
	*p = start([]eventbus.Start{eventbus.StartEarliest, eventbus.StartLatest}[i])
	return nil
}

func (*start) noun(*field) string {
	return strings.Join(startTexts, ", ") + ", after POSITION, a time, or 2h ago"
}

func (*start) schema(*field) schema {
	return schema{"anyOf": []schema{
		oneOf(startTexts), {"type": "string", "pattern": "^after .*[^ ]"}, {"type": "string", "pattern": "^[0-9]{4}-.*T"}, {"type": "string", "pattern": " ago$"},
	}}
}

func (*start) style() style { return textStyle }
