package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// A NumberError says that a program cannot use the number of partitions that it states, because the
// broker has another one, or because a command is changing it. In the second case the error
// matches [backend.ErrUnavailable]: Publish tries again.
type NumberError struct {
	Topic          string
	Stored, Stated int

	Next  int    // the number that a command is about to store; 0: there is no such command
	By    string // the operator of that command
	Began time.Time
}

// Error names the numbers, and the way to change the stored one.
func (e *NumberError) Error() string {
	if e.Next > 0 {
		return fmt.Sprintf("topic %s has %d partitions, and %q is changing them to %d since %s: if that command is no longer running, repeat it",
			e.Topic, e.Stored, e.By, e.Next, e.Began.Format(time.RFC3339))
	}
	return fmt.Sprintf("topic %s has %d partitions, and this program states %d: state %d, or change the topic by eventbus topics set %s --partitions %d, see docs/partitions.md",
		e.Topic, e.Stored, e.Stated, e.Stored, e.Topic, e.Stated)
}

// Is reports whether target is [backend.ErrUnavailable], while a command is changing the number.
func (e *NumberError) Is(target error) bool { return e.Next > 0 && target == backend.ErrUnavailable }

// The topic of the number has a few messages. The first one that is a number decides, so that programs
// that begin at the same time have the same result. A change of the number is two more messages: a
// mark, which closes the topic for publishers, and a later one that names the mark and ends the change. To give up
// a change, its mark is removed.
type numberLog struct {
	number int      // 0: none is stored
	epochs int      // epochs of members begin after it
	open   []change // marks of changes that have not ended, the first one first
	all    []string // positions of all messages
	last   []string // positions of the two messages of the last change that has ended
}

// A change is the payload of the two messages of a change.
type change struct {
	ID     string    `json:"change"`
	Ended  bool      `json:"ended,omitempty"`  // in the second message
	Epochs int       `json:"epochs,omitempty"` // in the second message: no owner had a greater epoch so far
	From   int       `json:"from,omitempty"`
	To     int       `json:"to,omitempty"`
	By     string    `json:"by,omitempty"`
	Began  time.Time `json:"began,omitzero"`

	position string
}

// Agree stores the number of partitions of topic, unless one is stored. If another number is
// stored, or a command is changing it, the error is a *NumberError.
func Agree(ctx context.Context, b backend.Backend, topic string, n int) error {
	_, err := agree(ctx, b, topic, n)
	return err
}

// agree does the work of Agree, and returns the log too.
func agree(ctx context.Context, b backend.Backend, topic string, n int) (numberLog, error) {
	var l numberLog
	err := patiently(ctx, func(ctx context.Context) (err error) {
		if l, err = readNumber(ctx, b, topic); err == nil && l.number == 0 {
			l, err = storeNumber(ctx, b, topic, n)
		}
		return err
	})
	switch {
	case err != nil:
		err = fmt.Errorf("the number of partitions of %s: %w", topic, backend.ErrorAt(err, 0))
	case len(l.open) > 0:
		err = l.open[0].error(topic, l.number, n)
	case l.number != n:
		err = &NumberError{Topic: topic, Stored: l.number, Stated: n}
	}
	return l, err
}

// storeNumber stores the first number of partitions.
func storeNumber(ctx context.Context, b backend.Backend, topic string, n int) (l numberLog, err error) {
	m := &backend.Message{
		Topic: NumberTopic(topic), ID: "partitions", Payload: []byte(strconv.Itoa(n)),
		Once: backend.LimitsOf(b).OnceWindow > 0, OnceKey: "partitions",
	}
	err = backend.ErrorAt(b.Publish(ctx, []*backend.Message{m}), 0)
	if err == nil || errors.Is(err, backend.ErrUnknownOutcome) {
		l, err = readNumber(ctx, b, topic)
	}
	if err == nil && l.number == 0 {
		err = backend.ErrUnknownOutcome
	}
	return l, err
}

// tryTime bounds one call of patiently, because a topic that has no leader does not answer at all.
const tryTime = 2 * time.Second

// patiently calls f, the first use of a topic, and again for some seconds while the topic is
// unavailable: if several programs make a topic of a cluster at the same time, it has no leader for a moment.
func patiently(ctx context.Context, f func(ctx context.Context) error) error {
	for until := time.Now().Add(callTime); ; wait.Sleep(ctx, lookAgain) {
		try, cancel := context.WithTimeout(ctx, tryTime)
		err := f(try)
		late := try.Err() != nil
		cancel()
		passes := late || errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome)
		if err == nil || !passes || ctx.Err() != nil || !time.Now().Before(until) {
			return err
		}
	}
}

// error returns the error of a program that states a number while the change is under way.
func (c *change) error(topic string, stored, stated int) *NumberError {
	return &NumberError{Topic: topic, Stored: stored, Stated: stated, Next: c.To, By: c.By, Began: c.Began}
}

// Number returns the number of partitions of topic that is stored; 0: none is.
func Number(ctx context.Context, b backend.Backend, topic string) (int, error) {
	l, err := readNumber(ctx, b, topic)
	return l.number, err
}

// Unfinished returns the number of partitions of topic that is stored, and the change of it that a
// command has begun and not ended; nil: there is none.
func Unfinished(ctx context.Context, b backend.Backend, topic string) (int, *NumberError, error) {
	l, err := readNumber(ctx, b, topic)
	if err != nil || len(l.open) == 0 {
		return l.number, nil, err
	}
	return l.number, l.open[0].error(topic, l.number, l.number), nil
}

const numberPage = 64 // messages of one Read

// readNumber reads the topic of the number.
func readNumber(ctx context.Context, b backend.Backend, topic string) (l numberLog, err error) {
	marks := map[string]change{}
	for from := backend.StartEarliest; ; {
		ms, err := backend.Read(ctx, b, NumberTopic(topic), from, numberPage)
		if errors.Is(err, backend.ErrGone) || err == nil && len(ms) == 0 {
			return l, nil
		}
		if err != nil {
			return numberLog{}, err
		}
		for i := range ms {
			if err := l.add(&ms[i], marks); err != nil {
				return numberLog{}, err
			}
		}
		from = backend.StartAfter(strings.Clone(ms[len(ms)-1].Position))
	}
}

// add adds a message.
func (l *numberLog) add(m *backend.Message, marks map[string]change) error {
	at := strings.Clone(m.Position)
	l.all = append(l.all, at)
	if n, err := strconv.Atoi(string(m.Payload)); err == nil && n >= 1 && n <= Most {
		if l.number == 0 {
			l.number = n
		}
		return nil
	}
	var c change
	err := json.Unmarshal(m.Payload, &c)
	c.position = at
	switch mark, begun := marks[c.ID]; {
	case err != nil || c.ID == "" || !c.Ended && (c.From < 1 || c.From > Most || c.To < 1 || c.To > Most):
		return fmt.Errorf("%w: a message of %s is %.64q, which is no number of partitions", backend.ErrRefused, m.Topic, m.Payload)
	case !c.Ended:
		marks[c.ID] = c
		l.open = append(l.open, c)
		if l.number == 0 {
			l.number = c.From
		}
	case begun: // otherwise the change was given up
		l.number, l.epochs = mark.To, max(l.epochs, c.Epochs)
		l.open = slices.DeleteFunc(l.open, func(o change) bool { return o.ID == c.ID })
		l.last = []string{mark.position, at}
	}
	return nil
}

// PledgeTime is how long a publisher may go by the number of partitions that it has read. A command
// that changes the number waits for longer, so that no publisher uses the old one afterwards.
const PledgeTime = 5 * time.Second

// A Pledge says whether a publisher may go by the number of partitions that it has read. It is safe
// for concurrent use. The zero Pledge does not hold.
type Pledge struct{ base atomic.Pointer[time.Time] }

// Renew records that the number was read by a call that began at base.
func (p *Pledge) Renew(base time.Time) { p.base.Store(&base) }

// End makes p not hold.
func (p *Pledge) End() { p.base.Store(nil) }

// Holds reports whether the publisher may go by the number now.
func (p *Pledge) Holds() bool {
	base := p.base.Load()
	return base != nil && !passed(*base, PledgeTime, time.Now())
}
