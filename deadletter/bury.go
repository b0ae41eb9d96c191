package deadletter

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/pages"
)

// A Burial names the event that [Topic.Bury] removes from a group.
type Burial struct {
	Topic    string // the event's topic, as in its dead letter: for an event in a partition, the partition
	Group    string // the group to remove the event from
	Position string // the event's position in Topic

	// By and Why say who removes the event and why. Error is the text of the event's last error,
	// and Attempts the number of its last attempt, if known. Together they become the error of the
	// dead letter, such as "no tax rate; taken away by ann: INC-7".
	By, Why  string
	Error    string
	Attempts int
}

// text returns the error text of the dead letter.
func (b *Burial) text() string {
	text := "taken away by " + cmp.Or(b.By, "an operator")
	if b.Why != "" {
		text += ": " + b.Why
	}
	if b.Error != "" {
		text = b.Error + "; " + text
	}
	return text
}

// ErrSettled is the error of Bury if the group has already settled the event.
var ErrSettled = errors.New("the group has settled the event")

// Bury removes an event from a group and stores it as a dead letter in t, with the reason
// [eventbus.ReasonOperator]. It is for operators who need to get rid of an event that keeps
// failing, or whose handler hangs, so that the group continues with later events. The event must
// have been delivered to the group, but the group's members need not be running. Other groups are
// not affected. To undo it, redrive the dead letter.
//
// A run of the event that is in progress is not stopped at once: its member loses the lease, which
// ends the context of the run. If the run succeeds before that, the event is handled and also has a
// dead letter. Later events of its key continue once their member has noticed, about five seconds
// later. This holds for FailAll too, because the key does not count as failed.
//
// If the error matches [ErrSettled], [backend.ErrGone], or an error class without an effect,
// nothing has changed. After [backend.ErrUnknownOutcome] the dead letter may be stored while the
// group may still get the event. Bury needs a backend with [backend.Reader], [backend.Remover] and
// [backend.Settler]; otherwise the error matches errors.ErrUnsupported.
func (t *Topic) Bury(ctx context.Context, b Burial) (*Letter, error) {
	l, err := t.bury(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("deadletter: bury the event at %s of %s/%s in %s: %w", b.Position, b.Topic, b.Group, t.name, err)
	}
	return l, nil
}

func (t *Topic) bury(ctx context.Context, b Burial) (*Letter, error) {
	for _, name := range []string{b.Topic, b.Group} {
		if err := backend.CheckName(name); err != nil {
			return nil, err
		}
	}
	settler, err := backend.SettlerOf(t.backend)
	if err != nil {
		return nil, err
	}
	dead, err := t.letterOf(ctx, b)
	if err != nil {
		return nil, err
	}
	if err := t.backend.Publish(ctx, []*backend.Message{dead}); err != nil {
		return nil, backend.ErrorAt(err, 0)
	}
	had, err := settler.Settle(ctx, b.Topic, b.Group, b.Position)
	switch {
	case err == nil && had:
		l, _ := newLetter(dead)
		return l, nil
	case err == nil:
		err = ErrSettled
	case !backend.NotStored(err) && !errors.Is(err, backend.ErrGone):
		return nil, fmt.Errorf("the dead letter is stored, but the group may still have the event: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), burialTime)
	defer cancel()
	if left := backend.Remove(ctx, t.backend, t.name, []string{dead.Position}); left != nil {
		err = fmt.Errorf("%w; its dead letter at %s is to be discarded, which has failed: %w", err, dead.Position, left)
	}
	return nil, err
}

// The bounds of a search for one event.
const (
	burialTime   = 10 * time.Second // for one call to the backend
	burialCalls  = 5000
	burialEvents = 500_000 // stored in one millisecond
	burialBytes  = 1 << 30
)

// letterOf makes the dead letter of a burial.
func (t *Topic) letterOf(ctx context.Context, b Burial) (*backend.Message, error) {
	read := pages.Reader{Backend: t.backend, Topic: b.Topic, Bounds: &pages.Bounds{Calls: burialCalls, Events: burialEvents, Bytes: burialBytes}, Timeout: burialTime}
	m, err := read.At(ctx, b.Position)
	if errors.Is(err, pages.ErrSpent) {
		return nil, fmt.Errorf("%w: the event is not found: %w", backend.ErrRefused, err)
	}
	if err != nil {
		return nil, err
	}
	if group := letter.Restore(m); group != "" && group != b.Group {
		return nil, fmt.Errorf("%w: the event was redriven for the group %s alone", backend.ErrRefused, group)
	}
	dead := letter.Of(m, &letter.Failure{
		Reason: eventbus.ReasonOperator, Error: b.text(), Attempts: b.Attempts, Topic: b.Topic, Group: b.Group, Last: time.Now(),
	})
	dead.Topic, dead.ID = t.name, fmt.Sprintf("%s/%s/%s/%s", b.Group, b.Topic, b.Position, rand.Text())
	letter.Shorten(dead, backend.LimitsOf(t.backend).Payload)
	return dead, nil
}
