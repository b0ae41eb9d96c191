// Package deadletter lists the dead letters of a topic, redrives them (publishes their events
// again, for the group that could not handle them), and discards them. The command "eventbus dlq"
// does the same.
//
//	letters, err := deadletter.Open(bus.Backend(), "shop.orders.dlq")
//	report, err := letters.Redrive(ctx, deadletter.Redrive{Filter: deadletter.Filter{Group: "billing"}})
//
// The package works on every backend that implements [backend.Reader] and [backend.Remover].
package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A Topic is a dead-letter topic. Its methods are safe for concurrent use, and so are several
// Topics with the same name, in any number of processes.
type Topic struct {
	backend backend.Backend
	name    string
}

// Open returns the dead-letter topic called name. It makes no call to the broker. If b does not
// implement [backend.Reader] and [backend.Remover], the error matches errors.ErrUnsupported.
func Open(b backend.Backend, name string) (*Topic, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, fmt.Errorf("deadletter: topic: %w", err)
	}
	_, reads := backend.As[backend.Reader](b)
	_, removes := backend.As[backend.Remover](b)
	if !reads || !removes {
		return nil, fmt.Errorf("deadletter: open %s: the backend cannot read topics or remove messages: %w", name, errors.ErrUnsupported)
	}
	return &Topic{b, name}, nil
}

// A Letter is one dead letter.
type Letter struct {
	eventbus.DeadLetter                // why the event failed
	Event               eventbus.Event // the event as it was published, without its TTL
	Place               string         // the position of the letter in the dead-letter topic

	message *backend.Message
}

// newLetter returns the dead letter stored in m, or false if m is not a dead letter.
func newLetter(m *backend.Message) (*Letter, bool) {
	stored := eventbus.EventOf(m)
	why, ok := eventbus.DeadLetterOf(&stored)
	if !ok {
		return nil, false
	}
	return &Letter{DeadLetter: why, Event: eventbus.EventOf(letter.Event(m)), Place: m.Position, message: m}, true
}

// Stored returns the dead letter as a reader of the dead-letter topic gets it: the message with the
// headers that say why its event failed. It shares the payload and the headers of the letter.
func (l *Letter) Stored() backend.Message { return *l.message }

// A Filter selects the dead letters that match all of its fields. A zero field matches everything.
type Filter struct {
	From               backend.Start      // where to start reading, so that older letters are not read; default: at the oldest letter
	Group, Topic       string             // the group that failed, and the topic of its event
	Reason, ErrorClass string             // as in eventbus.DeadLetter
	Type               string             // the type of the event
	ID, Key            string             // the ID and the key of the event
	Place              string             // the position of the letter in the dead-letter topic
	Since, Before      time.Time          // the letter's LastAttempt is at or after Since, and before Before
	Match              func(*Letter) bool // reports whether a letter matches
}

func (f *Filter) matches(l *Letter) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Group, l.Group) && is(f.Topic, l.Topic) && is(f.Reason, l.Reason) && is(f.ErrorClass, l.ErrorClass) &&
		is(f.Type, l.Event.Type) && is(f.ID, l.ID) && is(f.Key, l.Event.Key) && is(f.Place, l.Place) &&
		!l.LastAttempt.Before(f.Since) && (f.Before.IsZero() || l.LastAttempt.Before(f.Before)) &&
		(f.Match == nil || f.Match(l))
}

const page = 100 // messages of one read

// All yields the dead letters that f selects, oldest first, and leaves out messages that are not
// dead letters. If the topic does not exist, it yields none. Letters may be added or removed in the
// meantime; added ones are yielded too. All ends after an error.
func (t *Topic) All(ctx context.Context, f Filter) iter.Seq2[*Letter, error] {
	return t.pages(ctx, f, page, func(string) error { return nil })
}

// pages is like All, but reads size messages at a time, and calls between after each read, with the
// position after which it reads on. It ends if between returns an error.
func (t *Topic) pages(ctx context.Context, f Filter, size int, between func(from string) error) iter.Seq2[*Letter, error] {
	return func(yield func(*Letter, error) bool) {
		for start := f.From; ; {
			ms, err := backend.Read(ctx, t.backend, t.name, start, size)
			if errors.Is(err, backend.ErrGone) {
				return
			}
			if err != nil {
				yield(nil, t.failed("read", err))
				return
			}
			if len(ms) == 0 {
				return
			}
			for i := range ms {
				if l, ok := newLetter(&ms[i]); ok && f.matches(l) && !yield(l, nil) {
					return
				}
			}
			last := ms[len(ms)-1].Position
			start = backend.StartAfter(last)
			if err := between(last); err != nil {
				yield(nil, err)
				return
			}
			if f.Place != "" && last >= f.Place {
				return // no later letter has this position
			}
		}
	}
}

// A Class counts the dead letters with the same topic, group, reason, error class and event type.
type Class struct {
	Topic      string    `json:"topic"`
	Group      string    `json:"group"`
	Reason     string    `json:"reason"`
	ErrorClass string    `json:"error_class"`
	Type       string    `json:"type"` // of the event
	Letters    int       `json:"letters"`
	Oldest     time.Time `json:"oldest,omitzero"` // the earliest LastAttempt
	Newest     time.Time `json:"newest,omitzero"` // the latest LastAttempt
	Error      string    `json:"error"`           // the error text of one of the letters
}

// Classes returns the classes of the dead letters that f selects, the largest first.
func (t *Topic) Classes(ctx context.Context, f Filter) ([]Class, error) {
	type key struct{ topic, group, reason, class, kind string }
	found := map[key]*Class{}
	for l, err := range t.All(ctx, f) {
		if err != nil {
			return nil, err
		}
		k := key{l.Topic, l.Group, l.Reason, l.ErrorClass, l.Event.Type}
		c := found[k]
		if c == nil {
			c = &Class{
				Topic: l.Topic, Group: l.Group, Reason: l.Reason, ErrorClass: l.ErrorClass, Type: l.Event.Type,
				Oldest: l.LastAttempt, Newest: l.LastAttempt, Error: l.Error,
			}
			found[k] = c
		}
		c.Letters++
		if l.LastAttempt.Before(c.Oldest) {
			c.Oldest = l.LastAttempt
		}
		if l.LastAttempt.After(c.Newest) {
			c.Newest = l.LastAttempt
		}
	}
	classes := make([]Class, 0, len(found))
	for _, c := range found {
		classes = append(classes, *c)
	}
	slices.SortFunc(classes, func(a, b Class) int {
		return cmp.Or(-cmp.Compare(a.Letters, b.Letters), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.ErrorClass, b.ErrorClass), cmp.Compare(a.Type, b.Type))
	})
	return classes, nil
}

// Discard permanently removes the dead letters that f selects. removed is how many were certainly
// removed, even if Discard returns an error.
func (t *Topic) Discard(ctx context.Context, f Filter) (removed int, err error) {
	var positions []string
	remove := func() error {
		if len(positions) == 0 {
			return nil
		}
		if err := backend.Remove(ctx, t.backend, t.name, positions); err != nil {
			return t.failed("remove letters", err)
		}
		removed += len(positions)
		positions = positions[:0]
		return nil
	}
	for l, err := range t.All(ctx, f) {
		if err != nil {
			return removed, err
		}
		if positions = append(positions, l.Place); len(positions) == page {
			if err := remove(); err != nil {
				return removed, err
			}
		}
	}
	err = remove()
	return removed, err
}

// Bounds say which dead letters [Topic.Trim] keeps: those within all bounds. A field of zero or
// less is no bound.
type Bounds struct {
	Letters int           // how many letters to keep, newest first
	Bytes   int64         // how many bytes of the newest letters to keep, including headers
	Age     time.Duration // how long ago a kept letter's LastAttempt may be
}

// Trim removes those of the dead letters selected by f that are outside at least one bound of b.
// Other letters don't count towards the bounds. It returns how many it removed, even if it returns
// an error. Call it from time to time to keep a dead-letter topic small.
func (t *Topic) Trim(ctx context.Context, f Filter, b Bounds) (removed int, err error) {
	type kept struct {
		position string
		size     int64
	}
	var newest []kept // the newest letters, within the bounds of number and size
	var size int64    // of these letters
	last := ""        // the newest position that is not in newest
	if b.Letters > 0 || b.Bytes > 0 {
		for l, err := range t.All(ctx, f) {
			if err != nil {
				return 0, err
			}
			position := strings.Clone(l.Place) // the original would keep the whole letter in memory
			newest = append(newest, kept{position, int64(l.message.Size())})
			size += int64(l.message.Size())
			for b.Letters > 0 && len(newest) > b.Letters || b.Bytes > 0 && size > b.Bytes {
				last, size, newest = newest[0].position, size-newest[0].size, newest[1:]
			}
		}
	}
	oldest, match := time.Time{}, f.Match
	if b.Age > 0 {
		oldest = time.Now().Add(-b.Age)
	}
	f.Match = func(l *Letter) bool {
		return (l.Place <= last || l.LastAttempt.Before(oldest)) && (match == nil || match(l))
	}
	return t.Discard(ctx, f)
}

func (t *Topic) failed(op string, err error) error {
	return fmt.Errorf("deadletter: %s of %s: %w", op, t.name, err)
}
