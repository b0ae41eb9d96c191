package partition

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// A Change gives a topic another number of partitions. Run does it without harm to the order of any
// key, and without the loss of an event that a group has not settled:
//
//  1. No member may live, and every group must have settled all events of all partitions.
//  2. A mark closes the topic for publishers, which believe a number for PledgeTime.
//  3. The change takes the tokens of all partitions in all groups, so that no member owns any.
//  4. When no publisher can believe the old number any more, it looks again whether all is settled.
//  5. The groups are made in the new partitions, and then the new number is stored.
//  6. Partitions that are not used any more are deleted, with their tokens.
//
// If a step before the fifth one fails, the mark is removed, and the topic is as before.
type Change struct {
	Backend backend.Backend
	Topic   string
	Number  int
	By      string // names the operator

	// Confirm asks the operator to agree to a loss. An error ends the change.
	Confirm func(Loss) error
}

// A Loss is a loss that an operator has to agree to. Kept are events that a partition has although
// every group has settled them, because it keeps them or has no group.
type Loss struct {
	Deleted int64        // kept events of partitions that are deleted
	Mixed   int64        // further kept events, which have no order with later ones of their key
	Other   *NumberError // a change that has begun and did not end: it is given up
}

// less reports whether o is a greater loss.
func (l Loss) less(o Loss) bool {
	more := func(a, b int64) bool { return a != backend.Unknown && (b > a || b == backend.Unknown) }
	return more(l.Deleted, o.Deleted) || more(l.Mixed, o.Mixed)
}

// A Result describes a change that was made.
type Result struct {
	Before, Now int
	Groups      int   // that have the partitions
	Deleted     int   // partitions
	Events      int64 // that were deleted with them
}

const (
	// changeTime bounds a change until its number is stored. A command that was frozen for longer does not go on.
	changeTime = time.Minute

	// fence is how long after the mark is stored a change is sure that no publisher believes the old
	// number, although clocks differ in speed.
	fence = PledgeTime + PledgeTime/20 + time.Second
)

var errSlow = errors.New("the change has taken more than a minute, so it was given up: try again")

// Run makes the change. An error says whether the new number is stored.
func (c *Change) Run(ctx context.Context) (r Result, err error) {
	admin, ok := backend.As[backend.Admin](c.Backend)
	if !ok {
		return r, fmt.Errorf("this backend cannot list topics and groups: %w", errors.ErrUnsupported)
	}
	l, err := readNumber(ctx, c.Backend, c.Topic)
	switch {
	case err != nil:
		return r, err
	case l.number == 0:
		return r, fmt.Errorf("%s has no partitions: the first program that states them stores their number", c.Topic)
	}
	w := &changing{Change: c, admin: admin, before: l.number, past: l.epochs}
	if err := w.takeOver(ctx, l); err != nil {
		return r, err
	}
	if err := w.survey(ctx); err != nil {
		return r, err
	}
	if w.loss != (Loss{}) {
		if err := c.Confirm(w.loss); err != nil {
			return r, err
		}
	}
	if l.number == c.Number { // partitions may be left by a change that did not end
		r = Result{Before: w.before, Now: w.Number, Groups: len(w.groups)}
		return r, w.sweep(ctx, &r)
	}
	return w.run(ctx)
}

// A changing is a change under way.
type changing struct {
	*Change
	admin  backend.Admin
	before int // the number of partitions
	past   int // no owner had a greater epoch before the last change

	parts   []string // the partitions that exist
	groups  []string // that share partitions, or are in any of them; sorted
	sharing []string // of these, the groups with tokens
	loss    Loss
	notes   []Member // of the dead
	began   time.Time
	marked  time.Time // the mark is stored
	mark    change
	held    []seized // all tokens
}

// takeOver gives up a change that has begun and did not end, if the operator agrees.
func (w *changing) takeOver(ctx context.Context, l numberLog) error {
	if len(l.open) == 0 {
		return nil
	}
	if err := w.Confirm(Loss{Other: l.open[0].error(w.Topic, l.number, w.Number)}); err != nil {
		return err
	}
	var positions []string
	for _, o := range l.open {
		positions = append(positions, o.position)
	}
	return backend.Remove(ctx, w.Backend, NumberTopic(w.Topic), positions)
}

// run makes the change from its mark on.
func (w *changing) run(ctx context.Context) (r Result, err error) {
	defer w.release(ctx)
	if err := w.close(ctx); err != nil {
		return r, err
	}
	if err := w.prepare(ctx); err != nil {
		if e := w.reopen(ctx); e != nil {
			err = fmt.Errorf("%w; publishers still wait, because the mark of this change was not removed: repeat the command: %w", err, e)
		}
		return r, err
	}
	if err := w.store(ctx); err != nil {
		return r, err
	}
	r = Result{Before: w.before, Now: w.Number, Groups: len(w.groups)}
	if err := w.sweep(ctx, &r); err != nil {
		return r, fmt.Errorf("%s has %d partitions now, but not all is tidied up: repeat the command: %w", w.Topic, w.Number, err)
	}
	return r, nil
}

// close stores the mark.
func (w *changing) close(ctx context.Context) error {
	w.began = time.Now()
	w.mark = change{ID: rand.Text(), From: w.before, To: w.Number, By: w.By, Began: w.began.UTC().Truncate(time.Second)}
	at, err := w.publish(ctx, w.mark)
	if err == nil {
		w.mark.position, w.marked = at, time.Now()
		var l numberLog
		if l, err = readNumber(ctx, w.Backend, w.Topic); err == nil && (len(l.open) == 0 || l.open[0].ID != w.mark.ID || l.number != w.before) {
			err = errors.New("another command changes the number at the same time")
		}
	}
	if err != nil {
		return errors.Join(err, w.reopen(ctx))
	}
	return nil
}

// publish stores a message of the change.
func (w *changing) publish(ctx context.Context, c change) (position string, err error) {
	payload, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	m := &backend.Message{Topic: NumberTopic(w.Topic), ID: "change", Payload: payload}
	err = backend.ErrorAt(w.Backend.Publish(ctx, []*backend.Message{m}), 0)
	return m.Position, err
}

// reopen removes the mark, also after ctx has ended, and if its Publish had an unknown outcome.
func (w *changing) reopen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	l, err := readNumber(ctx, w.Backend, w.Topic)
	if err != nil {
		return err
	}
	var own []string
	for _, o := range l.open {
		if o.ID == w.mark.ID {
			own = append(own, o.position)
		}
	}
	if len(own) == 0 {
		return nil
	}
	return backend.Remove(ctx, w.Backend, NumberTopic(w.Topic), own)
}

// prepare waits until no publisher and no member can use the old number, and looks again whether all
// is settled. Then it makes the groups in the new partitions.
func (w *changing) prepare(ctx context.Context) error {
	if err := w.seize(ctx); err != nil {
		return err
	}
	wait.Sleep(ctx, time.Until(w.marked.Add(fence)))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	agreed := w.loss
	if err := w.survey(ctx); err != nil {
		return err
	}
	if agreed.less(w.loss) {
		return errors.New("events were published meanwhile: try again")
	}
	if err := w.extend(ctx); err != nil {
		return err
	}
	if passed(w.began, changeTime, time.Now()) {
		return errSlow
	}
	return nil
}

// extend makes the new partitions, with the settings of the first one, and all groups in them. A
// program that publishes before the members begin must find the groups.
func (w *changing) extend(ctx context.Context) error {
	settings, err := w.settings(ctx, Topic(w.Topic, 0))
	if err != nil {
		return err
	}
	return concurrently(w.before, w.Number, func(i int) error {
		name := Topic(w.Topic, i)
		if settings != (backend.TopicSettings{}) {
			if _, err := backend.Declare(ctx, w.Backend, name, backend.Declaration{Settings: settings}); err != nil {
				return err
			}
		}
		for _, group := range w.groups {
			if err := backend.DeclareGroup(ctx, w.Backend, name, group, backend.StartEarliest); err != nil {
				return fmt.Errorf("group %s in %s: %w", group, name, err)
			}
		}
		return nil
	})
}

// store stores the new number.
func (w *changing) store(ctx context.Context) error {
	_, err := w.publish(ctx, change{ID: w.mark.ID, Ended: true, Epochs: w.epochs()})
	l, e := readNumber(context.WithoutCancel(ctx), w.Backend, w.Topic)
	switch {
	case e != nil:
		return fmt.Errorf("the new number may be stored or not: repeat the command: %w", errors.Join(err, e))
	case l.number != w.Number || len(l.open) > 0:
		return errors.Join(errors.New("the new number is not stored"), err, w.reopen(ctx))
	}
	return nil
}

// sweep removes all that the new number does not need: earlier messages about the number, notes of the
// dead, and partitions with their tokens.
func (w *changing) sweep(ctx context.Context, r *Result) error {
	l, err := readNumber(ctx, w.Backend, w.Topic)
	if err != nil {
		return err
	}
	spent := slices.DeleteFunc(l.all, func(p string) bool { return slices.Contains(l.last, p) })
	if len(spent) > 0 && len(l.open) == 0 {
		if err := backend.Remove(ctx, w.Backend, NumberTopic(w.Topic), spent); err != nil {
			return err
		}
	}
	for _, m := range w.notes {
		if err := gone(backend.Remove(ctx, w.Backend, MembersTopic(w.Topic), []string{m.position})); err != nil {
			return err
		}
	}
	if w.Number < w.before { // while no member has a token, because it would lose its partitions
		if err := gone(w.admin.DeleteTopic(ctx, OwnersTopic(w.Topic))); err != nil {
			return err
		}
	}
	for _, name := range w.parts {
		if _, i, _ := Cut(name); i < w.Number {
			continue
		}
		switch err := w.admin.DeleteTopic(ctx, name); {
		case err == nil:
			r.Deleted++
		case gone(err) != nil:
			return err
		}
	}
	r.Events = w.loss.Deleted
	return nil
}

// gone returns err, or nil if it says that a topic does not exist.
func gone(err error) error {
	if errors.Is(err, backend.ErrGone) {
		return nil
	}
	return err
}
