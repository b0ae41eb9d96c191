package groupstats

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pages"
)

// Letters is a count of dead letters. The zero value means that there are certainly none.
type Letters struct {
	Topic   string // the dead-letter topic
	N       int    // how many were counted
	More    bool   // there may be more, because the count is in progress or has reached its limit
	Unknown bool   // the backend cannot be read, so nothing is known
	Again   bool   // letters were removed since the count, and another count is in progress
	Classes []Class
	Counted time.Time // when the count began; it may include letters that were removed since
}

// String returns the number as text, such as "12", "12 or more", "about 12" or "unknown".
func (l Letters) String() string {
	switch n := Count(l.N).String(); {
	case l.Unknown:
		return "unknown"
	case l.Again:
		return "about " + n
	case l.More:
		return n + " or more"
	default:
		return n
	}
}

// A Class counts the letters that share a topic, group, reason, error class and event type.
type Class struct {
	Kind
	N              int
	Oldest, Newest time.Time // of the last attempts
	Error          string    // of one of the letters
}

// A Kind is what the letters of a Class have in common.
type Kind struct{ Topic, Group, Reason, ErrorClass, Type string }

// Further is the Reason of the class for all letters that have no class of their own, because there are too many classes
// or their names are too long.
const Further = "further classes"

// Limits of the memory for one topic.
const (
	mostClasses = 200 // and the class Further
	mostKind    = 1 << 10
	mostError   = 300 // bytes of Class.Error
)

// letterCounts counts letters by their Kind.
type letterCounts struct {
	n       int
	bytes   int64
	classes map[Kind]*Class
}

// KindOf returns why e, an event of a dead-letter topic, is a dead letter, and of which kind.
func KindOf(e *eventbus.Event) (eventbus.DeadLetter, Kind, bool) {
	why, ok := eventbus.DeadLetterOf(e)
	return why, Kind{why.Topic, why.Group, why.Reason, why.ErrorClass, e.Type}, ok
}

func (c *letterCounts) add(m *backend.Message, redact Redact) {
	c.bytes += int64(m.Size())
	e := redact.EventOf(m)
	why, kind, ok := KindOf(&e)
	if !ok {
		return
	}
	c.n++
	k := c.classes[kind]
	if k == nil {
		if len(c.classes) >= mostClasses || kind.size() > mostKind {
			kind = Kind{Reason: Further}
		}
		if k = c.classes[kind]; k == nil {
			text := strings.ToValidUTF8(why.Error[:min(len(why.Error), mostError)], "")
			k = &Class{Kind: kind.clone(), Oldest: why.LastAttempt, Newest: why.LastAttempt, Error: strings.Clone(text)}
			c.classes[k.Kind] = k
		}
	}
	k.N++
	if why.LastAttempt.Before(k.Oldest) {
		k.Oldest = why.LastAttempt
	}
	if why.LastAttempt.After(k.Newest) {
		k.Newest = why.LastAttempt
	}
}

// size returns the bytes of all names.
func (k Kind) size() int {
	return len(k.Topic) + len(k.Group) + len(k.Reason) + len(k.ErrorClass) + len(k.Type)
}

// clone returns a copy of k that does not keep the message it came from in memory.
func (k Kind) clone() Kind {
	return Kind{strings.Clone(k.Topic), strings.Clone(k.Group), strings.Clone(k.Reason), strings.Clone(k.ErrorClass), strings.Clone(k.Type)}
}

// letters returns the current counts, the largest class first.
func (c *letterCounts) letters(topic string, more bool, began time.Time) *Letters {
	l := &Letters{Topic: topic, N: c.n, More: more, Counted: began, Classes: make([]Class, 0, len(c.classes))}
	for _, k := range c.classes {
		l.Classes = append(l.Classes, *k)
	}
	slices.SortFunc(l.Classes, func(a, b Class) int {
		return cmp.Or(-cmp.Compare(a.N, b.N), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.ErrorClass, b.ErrorClass), cmp.Compare(a.Type, b.Type))
	})
	return l
}

// Of returns the letters of one group.
func (l *Letters) Of(group string) Letters {
	if l == nil {
		return Letters{}
	}
	of := Letters{Topic: l.Topic, More: l.More, Unknown: l.Unknown, Again: l.Again, Counted: l.Counted}
	for _, c := range l.Classes {
		switch {
		case c.Group == group:
			of.N += c.N
			of.Classes = append(of.Classes, c)
		case c.Kind == Kind{Reason: Further}: // some of them may be of the group
			of.More = true
		}
	}
	return of
}

// A letterCounter counts the letters of one topic by reading them. Letters can be removed anywhere in the topic, so it
// starts over from time to time; in between it reads only new letters.
type letterCounter struct {
	topic  string
	redact Redact

	count letterCounts
	from  backend.Start
	began time.Time // of the current count; zero: none
	whole bool      // the current count has reached the end of the topic
	full  bool      // the current count has reached a limit
	shown *Letters  // the last result
}

// Limits of one count.
const (
	mostLetters     = 100_000
	mostLetterBytes = 256 << 20
)

// again returns how long a count is good for. More letters cost more and are counted less often.
func (t *letterCounter) again() time.Duration {
	return max(time.Minute, time.Duration(t.count.n)*3*time.Millisecond)
}

// restart lets the next step begin another count. The last result is shown until that ends, because counting many letters
// takes a while.
func (t *letterCounter) restart() {
	t.began = time.Time{}
	if t.shown != nil && t.shown.N > 0 {
		shown := *t.shown // others have the last one
		shown.Again = true
		t.shown = &shown
	}
}

// step continues the count within the bounds left, and returns the letters counted so far.
func (t *letterCounter) step(ctx context.Context, b backend.Backend, timeout time.Duration, left *pages.Bounds, now time.Time) (*Letters, error) {
	if t.began.IsZero() || (t.whole || t.full) && now.Sub(t.began) > t.again() {
		*t = letterCounter{topic: t.topic, redact: t.redact, began: now, shown: t.shown, count: letterCounts{classes: map[Kind]*Class{}}}
	}
	read := &pages.Reader{Backend: b, Topic: t.topic, From: t.from, Bounds: left, Timeout: timeout}
	for !t.full {
		ms, err := read.Next(ctx, pages.MostPage)
		switch {
		case errors.Is(err, pages.ErrSpent):
			return t.show(), nil
		case errors.Is(err, backend.ErrGone): // the topic is new, or was deleted
			*t = letterCounter{topic: t.topic, redact: t.redact, began: now, whole: true, count: letterCounts{classes: map[Kind]*Class{}}}
			return t.show(), nil
		case errors.Is(err, errors.ErrUnsupported):
			return &Letters{Topic: t.topic, Unknown: true, Counted: now}, nil
		case err != nil:
			return nil, err
		case len(ms) == 0:
			t.whole = true
			return t.show(), nil
		}
		t.whole = false // until an empty page
		for i := range ms {
			t.count.add(&ms[i], t.redact)
		}
		t.from = read.From
		t.full = t.count.n >= mostLetters || t.count.bytes >= mostLetterBytes
	}
	return t.show(), nil
}

// show returns the result of the current count, or of the previous one until the current one is complete.
func (t *letterCounter) show() *Letters {
	if t.whole || t.full || t.shown == nil || t.shown.More && !t.shown.Again {
		t.shown = t.count.letters(t.topic, !t.whole, t.began)
	}
	return t.shown
}
