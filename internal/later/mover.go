package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
)

// A Mover publishes the events of a log when they are due.
type Mover struct {
	Backend backend.Backend
	Topic   string // the topic of the events

	// Publish stores messages, with repetitions of its own. Its error may be a
	// [backend.BatchError].
	Publish func(ctx context.Context, ms []*backend.Message) error

	// Failed is told of an error because of which events wait, and how many do; 0: not known.
	Failed func(events int, err error)

	Woken <-chan struct{} // gets an element when the log has a new record; may be nil

	// done has the positions of published events, whose records are to be removed. They outlive
	// an outage and the loss of the token, because a reading of the whole log would find the
	// records, and publish the events again.
	done []string
}

const (
	batch      = 500                   // the most events that are moved at a time
	loadBatch  = 32                    // the most events whose messages are loaded at a time
	batchBytes = 8 << 20               // about the most bytes that are published at a time
	leastPoll  = 50 * time.Millisecond // time between two readings of the log, if it has new records
	mostPoll   = 500 * time.Millisecond
	refused    = time.Minute // time before another try to publish an event that the backend has refused
)

// A shift is the work of a Mover while it holds the token.
type shift struct {
	*Mover
	view      *View
	clock     *Clock
	once      bool
	poll      time.Duration
	waits     *backoff.ExponentialBackOff
	notBefore time.Time // when the next try to move events begins, after a failure
}

// Scheduled reports whether the log of the topic has records.
func (m *Mover) Scheduled(ctx context.Context) (bool, error) {
	ms, err := backend.Read(ctx, m.Backend, Topic(m.Topic), "", 1)
	if errors.Is(err, backend.ErrGone) {
		err = nil
	}
	return len(ms) > 0, err
}

// Work waits for the token and moves events, until the log is empty or ctx ends. Then it
// returns nil. After an error the caller calls it again.
func (m *Mover) Work(ctx context.Context) error {
	t, err := openToken(ctx, m.Backend, m.Topic)
	if err != nil {
		return err
	}
	defer t.close(ctx)
	for ctx.Err() == nil {
		held, err := t.wait(ctx)
		if err != nil {
			return err
		}
		if held != nil {
			again, err := m.lead(held)
			t.giveBack(ctx)
			if !again || err != nil {
				return err
			}
			continue
		}
		if some, err := m.Scheduled(ctx); err != nil || !some {
			return err
		}
	}
	return nil
}

// lead moves events until ctx ends, because the token is lost or the bus ends, or until the
// log is empty. It reports whether there may be more to do.
func (m *Mover) lead(ctx context.Context) (again bool, err error) {
	s := &shift{
		Mover: m, view: NewView(m.Backend, m.Topic), clock: NewClock(m.Backend, m.Topic), once: backend.LimitsOf(m.Backend).OnceWindow > 0,
		poll: leastPoll, waits: backoff.NewExponentialBackOff(),
	}
	s.waits.InitialInterval, s.waits.MaxInterval, s.waits.MaxElapsedTime = leastPoll, 10*time.Second, 0
	for {
		next, err := s.step(ctx)
		switch {
		case ctx.Err() != nil:
			return true, nil //nolint:nilerr // the error says that ctx has ended
		case err != nil:
			return true, err
		case s.view.Empty() && len(s.done) == 0:
			return false, nil
		}
		s.pause(ctx, next)
	}
}

// pause waits for the time d, or for a new record of this process.
func (s *shift) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.Woken:
		s.poll = leastPoll
	case <-ctx.Done():
	}
}

// step reads the log, moves some events that are due, and removes some records. It returns
// the time until the next step.
func (s *shift) step(ctx context.Context) (next time.Duration, err error) {
	if isStale(s.view.fresh, time.Now()) {
		if err := s.remove(ctx, &s.done); err != nil {
			return 0, err
		}
	}
	had := s.view.read
	if err := s.view.Refresh(ctx); err != nil {
		return 0, err
	}
	if s.poll *= 2; s.view.read != had {
		s.poll = leastPoll
	}
	s.poll = min(s.poll, mostPoll)
	now, err := s.clock.Now(ctx)
	if err != nil {
		return 0, err
	}
	more := false
	if time.Now().After(s.notBefore) {
		begun := s.begin(ctx) // events that are due need not wait for it
		more, err = s.move(ctx, now)
		if err = cmp.Or(err, begun); err != nil {
			s.notBefore = time.Now().Add(s.waits.NextBackOff())
			s.Failed(len(s.view.moved), err)
		} else if !more {
			s.waits.Reset()
		}
	}
	if more && len(s.done) < 10*batch {
		return 0, ctx.Err()
	}
	if err := s.clean(ctx); err != nil {
		return 0, err
	}
	if more {
		return 0, ctx.Err()
	}
	if err := s.view.loadAhead(ctx, now); err != nil {
		return 0, err
	}
	return s.next(ctx)
}

// next returns the time until the next step.
func (s *shift) next(ctx context.Context) (time.Duration, error) {
	next := s.poll
	if e := s.view.queue.next(); e != nil {
		now, err := s.clock.Now(ctx)
		if err != nil {
			return 0, err
		}
		next = min(next, e.at.Sub(now))
	}
	return max(next, time.Until(s.notBefore), time.Millisecond), nil
}

// begin stores the first event of each recurring entry that has none.
func (s *shift) begin(ctx context.Context) error {
	var records []*backend.Message
	for _, r := range s.view.entries {
		if len(r.pending) > 0 || r.times == nil || r.Plan.Paused {
			continue
		}
		due := r.first()
		if !r.last.IsZero() {
			due = r.times.Next(r.last)
		}
		if !due.IsZero() && !slices.ContainsFunc(s.view.moved, func(e *Event) bool { return e.Entry == r.ID }) {
			records = append(records, r.record(due))
		}
	}
	if len(records) == 0 {
		return nil
	}
	return s.append(ctx, records)
}

// append stores records and reads the log up to the last one.
func (s *shift) append(ctx context.Context, records []*backend.Message) error {
	if len(records) == 0 {
		return nil
	}
	if err := s.Publish(ctx, records); err != nil {
		return err
	}
	return s.view.RefreshTo(ctx, records[len(records)-1].Position)
}

// move decides which events are due at the time now, at most batch, and publishes them. more
// means that others may be due too.
func (s *shift) move(ctx context.Context, now time.Time) (more bool, err error) {
	due := s.view.queue.due(now, batch)
	if len(due) > 0 && len(s.view.moved) < batch {
		if err := s.decide(ctx, due, now); err != nil {
			return false, err
		}
	}
	if len(s.view.moved) == 0 {
		return len(due) > 0, nil
	}
	err = s.publish(ctx, now)
	return err == nil, err
}

// decide stores the record that moves events, and before it the next events of their recurring
// entries. If the log is full, no record can cancel an event either, so the events are moved
// without it.
func (s *shift) decide(ctx context.Context, due []*Event, now time.Time) error {
	var records []*backend.Message
	var positions []string
	var skipped []*Event
	for _, e := range due {
		fires := true
		if r := s.view.entries[e.Entry]; r != nil && r.times != nil {
			var next time.Time
			if next, fires = r.after(e.Due, now); !next.IsZero() && next.After(r.last) {
				records = append(records, r.record(next))
			}
		}
		if fires {
			positions = append(positions, e.position)
		} else {
			skipped = append(skipped, e)
		}
	}
	if len(positions) > 0 {
		record, err := list(s.Topic, isMove, positions)
		if err != nil {
			return err
		}
		records = append(records, record)
	}
	err := s.append(ctx, records)
	if isFull(err) {
		return s.decideInFull(due, err)
	}
	for _, e := range skipped {
		if err == nil && s.view.places[e.position] == e && !e.moved {
			s.view.drop(e)
		}
	}
	return err
}

// decideInFull moves the events that need no record.
func (s *shift) decideInFull(due []*Event, full error) error {
	for _, e := range due {
		if e.Entry == "" && !e.moved {
			s.view.move(e)
		}
	}
	s.Failed(len(due), fmt.Errorf("store a record in %s: %w", Topic(s.Topic), full))
	return nil
}

// isFull reports whether a message could not be stored because there is no room.
func isFull(err error) bool {
	return errors.Is(err, backend.ErrFull)
}

// publish publishes the events that are decided, in the order in which they are due.
func (s *shift) publish(ctx context.Context, now time.Time) error {
	slices.SortFunc(s.view.moved, compareDue)
	var gone, loaded []*Event
	var ms []*backend.Message
	size := 0
	for some := range slices.Chunk(slices.Clone(s.view.moved[:min(len(s.view.moved), batch)]), loadBatch) {
		there, err := s.view.load(ctx, some)
		if err != nil {
			return err
		}
		for _, e := range there {
			ms = append(ms, e.Message(s.Topic, now, s.once))
			size += e.message.Size()
		}
		loaded = append(loaded, there...)
		gone = append(gone, slices.DeleteFunc(some, func(e *Event) bool { return e.message != nil })...)
		if size > batchBytes {
			break
		}
	}
	var err error
	if len(ms) > 0 {
		err = s.Publish(ctx, ms)
	}
	return s.settle(gone, loaded, now, err)
}

// settle records the result of a publish of events. Events whose records are gone are done
// too. The error is the first one because of which all events have to wait.
func (s *shift) settle(gone, events []*Event, now time.Time, err error) (waits error) {
	done, bad := gone, 0
	var because error
	for i, e := range events {
		at := backend.ErrorAt(err, i)
		switch {
		case at == nil:
			done = append(done, e)
			continue
		case errors.Is(at, backend.ErrTooLarge), errors.Is(at, backend.ErrRefused):
			bad, because = bad+1, at
			s.view.revert(e, now.Add(refused))
		case backend.NotStored(at):
			waits = at
			s.view.revert(e, e.Due)
		default: // it may be stored, so it can no longer be cancelled
			waits = at
		}
	}
	if bad > 0 {
		s.Failed(bad, because)
	}
	s.done = append(s.done, s.view.published(done)...)
	return waits
}
