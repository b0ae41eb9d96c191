// Package feed publishes a stream of events.
package feed

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
)

// A Feed publishes what a reader brings. While a batch is being stored the next
// is read; a batch is what has been read by then, so that events which trickle
// in do not wait for others. Batches go one after another: what is stored is in
// the order of the input.
type Feed struct {
	Bus   eventbus.Publisher
	Topic string
	Input *ndjson.Reader

	// Prepare, if set, completes an event, or says why it is refused.
	Prepare func(*eventbus.Event) error
}

// An Error is the end of a feed before that of its input.
type Error struct {
	Stored  int  // events of the input, those of the batch that failed included
	Perhaps bool // more of them may be
	Err     error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%v; %d events are published", e.Err, e.Stored)
	if e.Perhaps {
		text += ", and perhaps more"
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Run publishes until the end of the input and returns how many events were
// stored; an error is an *Error. When ctx ends it leaves a goroutine that reads
// the input behind, since reading cannot be interrupted.
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
		case errors.Is(err, io.EOF):
			return stored, nil
		case err != nil:
			perhaps := errors.Is(err, eventbus.ErrUnknownOutcome)
			if ctx.Err() != nil { // whatever it has led to
				err = context.Cause(ctx)
			}
			return stored, &Error{Stored: stored, Perhaps: perhaps, Err: err}
		}
	}
}

// An item is one event of the input, and its line.
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

// publish stores items and returns how many of them it has.
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
		return stored, f.Input.At(items[i].line, why)
	}
	// Nothing of the batch is stored, since all of it is checked before: what
	// comes before the one that is refused still is to be.
	stored, err = f.publish(ctx, items[:i])
	if err == nil {
		err = f.Input.At(items[i].line, why)
	}
	return stored, err
}
