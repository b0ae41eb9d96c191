// Package feed publishes a stream of events.
package feed

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/count"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
)

// A Feed publishes the events of a reader. It reads events while it stores a batch. The
// next batch has all events that were read meanwhile, so that no event waits for later
// events. Batches are published one after another, so events are stored in the order of the
// input.
type Feed struct {
	Bus   eventbus.Publisher
	Topic string
	Input *ndjson.Reader

	// Prepare, if set, sets missing fields of an event. Its error says why the event is
	// refused.
	Prepare func(*eventbus.Event) error
}

// An Error means that a feed ended before its input did.
type Error struct {
	Stored  int  // the number of stored events, also of the failed batch
	Perhaps bool // whether more events than Stored may be stored, because an outcome is unknown
	Err     error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%v; published: %s", e.Err, count.Of(e.Stored, "event"))
	if e.Perhaps {
		text += ", and perhaps more"
	}
	return text
}

// Unwrap returns Err, the cause.
func (e *Error) Unwrap() error { return e.Err }

// Run publishes until the input ends, and returns the number of stored events. An error is
// an *Error. When ctx ends, Run leaves its reading goroutine behind, because a read cannot
// be interrupted.
func (f *Feed) Run(ctx context.Context) (stored int, err error) {
	q := newQueue()
	go f.read(ctx, q)
	for {
		items, readErr := q.take(ctx)
		n, err := f.publish(ctx, items)
		stored += n
		if err == nil {
			err = readErr
		}
		switch {
		case err == io.EOF: //nolint:errorlint // the input's own; an error of Publish may wrap another
			return stored, nil
		case err != nil:
			perhaps := errors.Is(err, eventbus.ErrUnknownOutcome)
			if ctx.Err() != nil { // the cause explains more than any error of Publish
				err = context.Cause(ctx)
			}
			return stored, &Error{Stored: stored, Perhaps: perhaps, Err: err}
		}
	}
}

// An item is one event of the input, and the number of its line.
type item struct {
	event *eventbus.Event
	line  int
}

func (f *Feed) read(ctx context.Context, q *queue) {
	for {
		e, line, err := f.Input.Next()
		if err == nil && f.Prepare != nil {
			if err = f.Prepare(e); err != nil {
				err = f.Input.At(line, err)
			}
		}
		if err != nil {
			q.end(err)
			return
		}
		if !q.put(ctx, item{e, line}) {
			return
		}
	}
}

// publish stores items and returns how many it stored.
func (f *Feed) publish(ctx context.Context, items []item) (stored int, err error) {
	if len(items) == 0 {
		return 0, nil
	}
	events := make([]*eventbus.Event, len(items))
	for i, it := range items {
		events[i] = it.event
	}
	err = f.Bus.Publish(ctx, f.Topic, events...)
	if err == nil {
		return len(items), nil
	}
	i, why := ndjson.Refused(err)
	if i < 0 || i >= len(items) {
		return 0, err
	}
	if p, ok := errors.AsType[*eventbus.PublishError](err); ok {
		for _, e := range p.Errors {
			if e == nil {
				stored++
			}
		}
		if stored > i {
			why = fmt.Errorf("%w; published after this line: %s", why, count.Of(stored-i, "event"))
		}
		return stored, f.Input.At(items[i].line, why)
	}
	// The check refused the whole batch before storing any of it. So the events before the
	// refused one are published now.
	stored, err = f.publish(ctx, items[:i])
	if err == nil {
		err = f.Input.At(items[i].line, why)
	}
	return stored, err
}
