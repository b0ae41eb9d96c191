package groupstats

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// Letters are counted dead letters. The zero Letters are certainly none.
type Letters struct {
	Topic   string // the dead-letter topic
	N       int    // letters that were counted
	More    bool   // there may be more, because the count goes on or has reached its bound
	Unknown bool   // the backend cannot be read, so nothing is known
	Again   bool   // letters were removed since the count, and another count goes on
	Classes []Class
	Counted time.Time // when the count began; letters that were removed since then may be in it
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

// A Class counts letters that have the same topic, group, reason, class of error and type.
type Class struct {
	Kind
	N              int
	Oldest, Newest time.Time // of the last attempts
	Error          string    // of one of the letters
}

// A Kind is common to the letters of a Class.
type Kind struct{ Topic, Group, Reason, ErrorClass, Type string }

// Further is the Reason of the class with the letters for which there is no class of their own, because
// there are too many classes or their names are too long.
const Further = "further classes"

// The bounds of the memory for one topic.
const (
	mostClasses = 200 // and the class Further
	mostKind    = 1 << 10
	mostError   = 300 // bytes of Class.Error
)

// A census counts letters by their Kind.
type census struct {
	n       int
	bytes   int64
	classes map[Kind]*Class
}

// KindOf returns why and of which kind e, an event of a dead-letter topic, is a dead letter.
func KindOf(e *eventbus.Event) (eventbus.DeadLetter, Kind, bool) {
	why, ok := eventbus.DeadLetterOf(e)
	return why, Kind{why.Topic, why.Group, why.Reason, why.ErrorClass, e.Type}, ok
}

func (c *census) add(m *backend.Message, redact Redact) {
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

// clone returns k without the memory of the message that it is from.
func (k Kind) clone() Kind {
	return Kind{strings.Clone(k.Topic), strings.Clone(k.Group), strings.Clone(k.Reason), strings.Clone(k.ErrorClass), strings.Clone(k.Type)}
}

// letters returns the present counts, the class with most letters first.
func (c *census) letters(topic string, more bool, began time.Time) *Letters {
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
