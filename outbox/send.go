package outbox

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A sending publishes rows of one topic, in order, on a goroutine of its own. Rows that are in none
// of its lists when it has ended stay in the database.
type sending struct {
	to    eventbus.Publisher
	topic string
	rows  []*row
	size  int // bytes of rows

	done    []int64 // numbers of the published rows
	refused []refusal
	failed  []*row // rows to try again
	wide    bool   // the failure concerns the whole topic
	gaveUp  bool   // too many rows failed on their own, and none was published
	err     error  // the first error of failed, or nil
}

const mostAlone = 10

type refusal struct {
	row *row
	err error
}

// publish publishes rows. If a call fails without saying which events failed, publish splits it in
// half, so that one bad event does not stop the others. It publishes no row behind a failed row of
// its key. After ten bad events without a good one it gives up for now, because more calls would
// not help if the bus is broken.
func (s *sending) publish(ctx context.Context, rows []*row) {
	rows = s.free(rows)
	if len(rows) == 0 {
		return
	}
	events, good := make([]*eventbus.Event, 0, len(rows)), rows[:0:0]
	for _, r := range rows {
		e, err := r.event()
		if err != nil {
			s.refused = append(s.refused, refusal{r, err})
			continue
		}
		events, good = append(events, e), append(good, r)
	}
	if rows = good; len(rows) == 0 {
		return
	}
	err := s.call(ctx, events)
	failed, each := errors.AsType[*eventbus.PublishError](err)
	switch {
	case err == nil:
		for _, r := range rows {
			s.done = append(s.done, r.number)
		}
	case each && len(failed.Errors) == len(rows):
		for i, r := range rows {
			s.settle(r, failed.Errors[i])
		}
	case isWide(err) || ctx.Err() != nil:
		s.failed, s.wide = append(s.failed, rows...), true
		s.addError(err)
	case len(rows) == 1:
		s.settle(rows[0], err)
		s.gaveUp = len(s.done) == 0 && len(s.failed) >= mostAlone
	default:
		s.publish(ctx, rows[:len(rows)/2])
		if !s.wide && !s.gaveUp {
			s.publish(ctx, rows[len(rows)/2:])
		}
	}
}

// free returns the rows that are not behind a failed row of their key.
func (s *sending) free(rows []*row) []*row {
	if len(s.failed) == 0 {
		return rows
	}
	keys := map[string]bool{}
	for _, r := range s.failed {
		keys[string(r.key)] = len(r.key) > 0
	}
	var free []*row
	for _, r := range rows {
		if !keys[string(r.key)] {
			free = append(free, r)
		}
	}
	return free
}

// settle records how the Publish of one row ended.
func (s *sending) settle(r *row, err error) {
	switch {
	case err == nil:
		s.done = append(s.done, r.number)
	case isRefusal(err):
		s.refused = append(s.refused, refusal{r, err})
	default:
		s.failed = append(s.failed, r)
		s.wide = s.wide || isWide(err)
		s.addError(err)
	}
}

func (s *sending) addError(err error) {
	if s.err == nil {
		s.err = err
	}
}

// call calls Publish, and turns a panic into an error.
func (s *sending) call(ctx context.Context, events []*eventbus.Event) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &observer.PanicError{Where: "the relay's Publisher", Value: v, Stack: debug.Stack()}
		}
	}()
	return s.to.Publish(ctx, s.topic, events...)
}

// isRefusal reports whether publishing the same event again would fail too.
func isRefusal(err error) bool {
	class := backend.Class(err)
	if class == nil {
		_, ok := errors.AsType[*eventbus.FieldError](err)
		return ok
	}
	return errors.Is(class, backend.ErrTooLarge) || errors.Is(class, backend.ErrRefused)
}

// isWide reports whether err concerns all events of the topic instead of one event.
func isWide(err error) bool {
	if isRefusal(err) {
		return false
	}
	return backend.Class(err) != nil || errors.Is(err, eventbus.ErrBackpressure) || errors.Is(err, eventbus.ErrDropped) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
