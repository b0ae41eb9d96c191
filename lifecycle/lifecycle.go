// Package lifecycle publishes a record of each step of an event: a run starts, it succeeds or
// fails, the event is retried, dead-lettered or discarded. Other processes can follow the records
// of a topic.
//
//	records := lifecycle.New(lifecycle.Options{})
//	bus, err := eventbus.Open(ctx, url, eventbus.Options{
//		Observer: observer.Join(observer.Slog(nil), records.Observer()),
//	}, drivers...)
//	…
//	err = records.Start(ctx, bus.Backend())
//	…
//	err = bus.Run(ctx)
//	err = records.Close(ctx)
//
// In another process:
//
//	for r, err := range lifecycle.Follow(ctx, b, "orders") {
//		fmt.Println(r.State, r.Group, r.ID, r.Attempt, r.Error, err)
//	}
//
// The command "eventbus tail --lifecycle orders/billing --follow" does the same.
//
// # Promises
//
// Records are best effort, and the bus never waits for them: a step puts its record into a bounded
// queue, and one goroutine publishes what is queued. If the queue is full, or the broker does not
// store a record, the record is dropped, counted and reported. After a crash the last records are
// missing. If you need a record that is certainly stored before an event is settled, use
// middleware.Audit, which makes each event wait.
//
// A record has the text of the error, but not the payload, headers or key of the event.
//
// # Topics
//
// The records about events of the topic "orders" are in the topic "orders.lifecycle". Events of
// topics with this suffix have no records, and neither do records that end up elsewhere.
//
// Each process keeps the newest Options.MaxRecords of a topic: it removes the oldest of those that
// it found at its start or has written since, so a topic has at most MaxRecords plus a tenth for
// each process that has written to it since the last one started. Other events in the topic are
// never removed. Follow the records without a group, because a group may miss removed ones.
package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// Options are the settings of a [Recorder]. A zero field means its default.
type Options struct {
	MaxRecords int           // how many of a topic's newest records this process keeps; default 10,000
	Queue      int           // how many records may wait to be published; default 4,096
	Timeout    time.Duration // limits each call to the backend; default 5 s
	Source     string        // the Source of the records; default: the file name of the program

	// OnDrop is called on the recorder's goroutine, at most once in ten seconds and by Close, if
	// records were dropped since the previous call, or, with records = 0, if old records cannot be
	// removed. Default: log a warning with slog.Default().
	OnDrop func(records int64, err error)
}

func (o Options) withDefaults() Options {
	o.MaxRecords = cmp.Or(o.MaxRecords, 10_000)
	o.Queue = cmp.Or(o.Queue, 4096)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.Source = cmp.Or(o.Source, eventbus.Options{}.Effective().Service)
	if o.OnDrop == nil {
		o.OnDrop = func(records int64, err error) {
			slog.Default().Warn("eventbus: lifecycle records dropped", "records", records, "error", observer.ErrorText(err))
		}
	}
	return o
}

// ErrFull is the error that OnDrop gets if the queue was full.
var ErrFull = errors.New("lifecycle: the queue of records is full")

// A Recorder publishes the records of one bus. It has one goroutine, from Start to Close. Its
// methods are safe for concurrent use.
type Recorder struct {
	o Options

	mu      sync.Mutex
	waiting []Record
	sending int // records taken from waiting that are not published yet
	dropped int64
	why     error // the latest reason for a drop
	closed  bool
	wake    chan struct{}      // holds an element if waiting or closed has changed
	ended   chan struct{}      // closed when the goroutine has ended; nil before Start
	cancel  context.CancelFunc // ends the calls to the backend
}

// New returns a Recorder. It panics if a field of o is negative.
func New(o Options) *Recorder {
	if o.MaxRecords < 0 || o.Queue < 0 || o.Timeout < 0 {
		panic("lifecycle: New: MaxRecords, Queue or Timeout is negative")
	}
	return &Recorder{o: o.withDefaults(), wake: make(chan struct{}, 1)}
}

// Start begins to publish to b, which is usually the backend of the bus, beginning with the records
// that are already queued. Calls to b have the values of ctx but do not end with it. If b cannot be
// read or cannot remove messages, the topics would grow for ever, so Start returns an error that
// matches [errors.ErrUnsupported]. It also returns an error if it was called before.
//
// The bus closes its backend at the end of Shutdown, so the last records are dropped unless b is
// another backend for the same broker.
func (r *Recorder) Start(ctx context.Context, b backend.Backend) error {
	_, reads := backend.As[backend.Reader](b)
	_, removes := backend.As[backend.Remover](b)
	if !reads || !removes {
		return fmt.Errorf("lifecycle: start: the backend cannot read topics or remove messages: %w", errors.ErrUnsupported)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != nil || r.closed {
		return errors.New("lifecycle: start: the recorder was started or closed before")
	}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.ended = make(chan struct{})
	w := &writer{recorder: r, backend: b, limits: backend.LimitsOf(b), stored: map[string]*storedRecords{}}
	go w.run(ctx)
	return nil
}

// Close publishes the queued records and ends the goroutine. If ctx ends first, the rest is
// dropped, and Close returns the cause of ctx. Call it after you have shut down the bus; later
// records are dropped and counted. A second Close waits for the first one.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	if r.ended == nil {
		r.drop(int64(len(r.waiting)), errors.New("lifecycle: the recorder was never started"))
		r.waiting = nil
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	r.signal()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		r.cancel()
		<-r.ended // a call to a backend returns soon after the end of its context
		return fmt.Errorf("lifecycle: close: %w", context.Cause(ctx))
	}
}

// Dropped returns how many records have been dropped.
func (r *Recorder) Dropped() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// add puts rec into the queue, or drops it if the queue is full.
func (r *Recorder) add(rec Record) {
	if rec.concernsRecord() {
		return
	}
	rec.Time = time.Now().Round(0).UTC()
	rec.ID, rec.Type = strings.Clone(rec.ID), strings.Clone(rec.Type) // they would keep a whole read in memory
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		r.drop(1, backend.ErrClosed)
	case len(r.waiting)+r.sending >= r.o.Queue:
		r.drop(1, ErrFull)
	default:
		r.waiting = append(r.waiting, rec)
	}
	r.signal()
}

// drop counts n records that were dropped because of why. The caller holds mu.
func (r *Recorder) drop(n int64, why error) {
	if n > 0 {
		r.dropped, r.why = r.dropped+n, why
	}
}

func (r *Recorder) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take waits for queued records and returns them. It returns false if there will be no more.
func (r *Recorder) take() ([]Record, bool) {
	for {
		r.mu.Lock()
		taken := r.waiting
		r.waiting, r.sending = nil, len(taken)
		closed := r.closed
		r.mu.Unlock()
		if len(taken) > 0 {
			return taken, true
		}
		if closed {
			return nil, false
		}
		<-r.wake
	}
}
