package ndjson

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
)

// A Publisher publishes the events of a [Reader] in the order of the input, batch by batch. It keeps reading while it stores
// a batch; the next batch has everything that was read in the meantime, so no event waits for later ones.
type Publisher struct {
	Bus   eventbus.Publisher
	Topic string
	Input *Reader

	// Prepare, if set, fills in missing fields of an event. An error refuses the event.
	Prepare func(*eventbus.Event) error
}

// A PublisherError means that publishing ended before the input did.
type PublisherError struct {
	Stored  int  // the number of stored events, including those of the failed batch
	Perhaps bool // more than Stored may be stored, because an outcome is unknown
	Err     error
}

func (e *PublisherError) Error() string {
	text := fmt.Sprintf("%v; published: %s", e.Err, plural.Of(e.Stored, "event"))
	if e.Perhaps {
		text += ", and perhaps more"
	}
	return text
}

// Unwrap returns Err, the cause.
func (e *PublisherError) Unwrap() error { return e.Err }

// Run publishes until the input ends, and returns the number of stored events. Its error is a *PublisherError. When ctx ends, Run leaves its reading goroutine behind, because a read cannot
// be interrupted.
func (f *Publisher) Run(ctx context.Context) (stored int, err error) {
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
		case err == io.EOF: //nolint:errorlint // the input's own; an error of Publish may wrap another io.EOF
			return stored, nil
		case err != nil:
			perhaps := errors.Is(err, eventbus.ErrUnknownOutcome)
			if ctx.Err() != nil { // the cause explains more than any error of Publish
				err = context.Cause(ctx)
			}
			return stored, &PublisherError{Stored: stored, Perhaps: perhaps, Err: err}
		}
	}
}

// An item is one event of the input, and the number of its line.
type item struct {
	event *eventbus.Event
	line  int
}

func (f *Publisher) read(ctx context.Context, q *queue) {
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
func (f *Publisher) publish(ctx context.Context, items []item) (stored int, err error) {
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
	i, why := Refused(err)
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
			why = fmt.Errorf("%w; published after this line: %s", why, plural.Of(stored-i, "event"))
		}
		return stored, f.Input.At(items[i].line, why)
	}
	// The check refused the whole batch before storing any of it, so publish the events before the refused one now.
	stored, err = f.publish(ctx, items[:i])
	if err == nil {
		err = f.Input.At(items[i].line, why)
	}
	return stored, err
}

// A queue passes events from the reading goroutine to the publishing one.
type queue struct {
	changed chan struct{} // receives a value after an item was put, or the input has ended
	taken   chan struct{} // receives a value after items were taken

	mu    sync.Mutex
	items []item
	bytes int
	err   error // why the input ended, such as io.EOF; nil: it has not
}

// Limits of the queue, which one event may exceed.
const (
	maxEvents = 4 << 10
	maxBytes  = 8 << 20
)

func newQueue() *queue {
	return &queue{changed: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
}

// put waits until there is room, and adds an item. It returns false if ctx ended before.
func (q *queue) put(ctx context.Context, it item) bool {
	for {
		q.mu.Lock()
		full := len(q.items) >= maxEvents || q.bytes >= maxBytes
		if !full {
			q.items = append(q.items, it)
			q.bytes += len(it.event.Payload) + it.event.Headers.Size()
		}
		q.mu.Unlock()
		if !full {
			signal(q.changed)
			return true
		}
		select {
		case <-q.taken:
		case <-ctx.Done():
			return false
		}
	}
}

// end records why the input ended.
func (q *queue) end(err error) {
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
	signal(q.changed)
}

// take waits until there are items and takes all of them. Once the input has ended, it also returns why.
func (q *queue) take(ctx context.Context) ([]item, error) {
	for {
		q.mu.Lock()
		items, err := q.items, q.err
		q.items, q.bytes = nil, 0
		q.mu.Unlock()
		signal(q.taken)
		if len(items) > 0 || err != nil {
			return items, err
		}
		select {
		case <-q.changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
