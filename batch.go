package eventbus

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/observer"
)

// A BatchSubscriber subscribes handlers of batches to topics. A [Bus] is one.
type BatchSubscriber interface {
	// SubscribeBatch makes h a member of the group o.Group of topic; see [Bus.SubscribeBatch].
	SubscribeBatch(ctx context.Context, topic string, o SubscribeOptions, batch Batch, h BatchHandler) (*Subscription, error)
}

// SubscribeBatch is like [Bus.Subscribe] for a handler that takes several events in one call, for
// example to write them with one SQL statement. The options mean the same for each event, with
// these differences:
//
//   - Concurrency is the number of calls of h that may run at the same time. The next batches
//     fill up in the meantime.
//   - Timeout bounds a call of h. On a backend that cannot extend leases, MaxWait plus Timeout
//     must be less than Lease.
//   - MaxInFlight must be at least Concurrency times MaxSize. By default it is that product or
//     1,024, whichever is greater. A limiter.MaxInFlight that several subscriptions share must be
//     greater than the sum of their products; see SubscribeOptions.Limiter.
//   - MaxRedelivered counts events, and must be less than Concurrency times MaxSize.
//   - With OrderByKey a batch has at most one event of each key, because an event runs only after
//     its predecessor has succeeded. Batches therefore stay small if there are few keys. With
//     Unordered a batch may have several events of a key. SubscribeBatch refuses OrderTotal.
//
// The events of a batch are in no particular order. Options.Middleware wraps each event of a
// batch: the middleware of all its events is called first, one inside the other, and h innermost.
// With AckOnReceive the events of a batch are acknowledged before the call. A drain gives back
// the events whose call has not begun.
func (b *Bus) SubscribeBatch(ctx context.Context, topic string, o SubscribeOptions, batch Batch, h BatchHandler) (*Subscription, error) {
	if h == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	mode, err := o.Ack.mode()
	if err != nil {
		return nil, err
	}
	if o, err = batch.Options(o); err != nil {
		return nil, err
	}
	batch, _ = batch.Effective() // Options has checked it
	return b.subscribe(ctx, member{topic: topic, o: o, mode: mode, batch: batch, calls: h})
}

// A BatchHandler handles several events in one call. The result at index i is for the event ds[i]
// and means the same as the result of a [Handler], so each event is settled by its own result. A
// nil slice means that all events are handled. A panic, or a slice whose length is not that of
// ds, fails every event of the call.
//
// An event on its last attempt is handled in a batch of its own, so that it cannot fail for good
// because of other events. The last attempt is here the one that reaches Retry.MaxAttempts, or
// the MaxAttempts of any of Retry.Rules. A MaxAttempts of 1 is the exception: events that have a
// single attempt share batches.
//
// ctx carries the values of the context given to SubscribeBatch. It ends when the handler
// returns, when SubscribeOptions.Timeout has passed since the call (cause
// *observer.TimeoutError), or when the contexts of all events of the batch have ended, because
// their leases are lost or the context of a Drain or Shutdown has ended. The result of an event
// whose lease is lost has no effect.
type BatchHandler func(ctx context.Context, ds []*Delivery) []error

// A Batch says when a batch is full. A batch that does not fill up is handled once MaxWait has
// passed since its first event. A zero field means its default.
type Batch struct {
	// MaxSize is the largest number of events in a batch. Default 100.
	MaxSize int

	// MaxBytes limits the total size of the payloads in a batch, in bytes. An event that is
	// larger gets a batch of its own. Default: no limit.
	MaxBytes int64

	// MaxWait is how long the first event of a batch waits for others. If
	// SubscribeOptions.Concurrency calls are running at that time, the batch waits until one of
	// them returns, and keeps filling. Default 10 ms; negative means no wait.
	MaxWait time.Duration
}

// Effective returns b with every zero field replaced by its default, as SubscribeBatch does. If
// SubscribeBatch refuses b, Effective returns the same *FieldError.
func (b Batch) Effective() (Batch, error) {
	setDefault(&b.MaxSize, 100)
	setDefault(&b.MaxWait, 10*time.Millisecond)
	b.MaxWait = max(b.MaxWait, -1)
	switch {
	case b.MaxSize < 0:
		return b, &FieldError{Field: "Batch.MaxSize", Reason: "is negative"}
	case b.MaxBytes < 0:
		return b, &FieldError{Field: "Batch.MaxBytes", Reason: "is negative"}
	}
	return b, nil
}

// Options returns o with the defaults that apply to batches like b. If [Bus.SubscribeBatch]
// refuses o with b, Options returns the same error, so a program can use it to check its options
// before it subscribes.
func (b Batch) Options(o SubscribeOptions) (SubscribeOptions, error) {
	b, err := b.Effective()
	if err != nil {
		return o, err
	}
	setDefault(&o.Concurrency, 1)
	most := max(o.Concurrency, o.MaxConcurrency)
	events := most * b.MaxSize
	switch {
	case o.Order == OrderTotal:
		return o, &FieldError{Field: "SubscribeOptions.Order", Reason: "is OrderTotal, which would leave one event in each batch"}
	case events/b.MaxSize != most:
		return o, &FieldError{Field: "Batch.MaxSize", Reason: "is too large"}
	case o.MaxInFlight > 0 && o.MaxInFlight < events:
		return o, &FieldError{
			Field:  "SubscribeOptions.MaxInFlight",
			Reason: fmt.Sprintf("is %d, less than Concurrency times Batch.MaxSize, %d", o.MaxInFlight, events),
		}
	}
	setDefault(&o.MaxInFlight, max(1024, events))
	o.batch = b.MaxSize
	return o, nil
}

var _ BatchSubscriber = (*Bus)(nil)

// batches returns the batch handler of m in the form that the engine takes.
func (o Options) batches(m member) (engine.Batch, error) {
	b := engine.Batch{Batch: engine.Bounds{Size: m.batch.MaxSize, Bytes: m.batch.MaxBytes, Wait: max(m.batch.MaxWait, 0)}}
	least := leastAttempts(m.o.Retry.Rules)
	b.Alone = func(h *engine.Hold) bool {
		if h.Attempt < 2 { // the usual case: no need to read the event
			return false
		}
		d := delivery(m.o.Group, h)
		d.MaxAttempts = m.attempts(d)
		return d.MaxAttempts > 1 && d.LastAttempt() || least > 0 && d.Attempt >= least
	}
	handle, err := o.wrap(innermost)
	if err != nil {
		return b, err
	}
	if len(o.Middleware) == 0 {
		handle = nil
	}
	b.Handle = func(ctx context.Context, runs []*engine.Run, results []error, startTimeout func()) {
		c := &batchCall{member: &m, ctx: ctx, runs: runs, results: results, startTimeout: startTimeout, handle: handle}
		c.begin() //nolint:contextcheck // it passes on the contexts of the runs
	}
	return b, nil
}

// A batchCall is one call of a BatchHandler.
type batchCall struct {
	*member
	ctx          context.Context
	runs         []*engine.Run
	results      []error // of runs, for the engine
	startTimeout func()  // starts the timeout of the call
	handle       Handler // the middleware of single events around innermost; nil without middleware

	live    []*Delivery   // the events that reach the BatchHandler
	indexes []int         // of live in runs
	inner   []error       // the results of the BatchHandler, by run
	reached []bool        // by run: the middleware has called innermost
	called  bool          // the BatchHandler has been called
	done    chan struct{} // closed when the outermost call of innermost has returned
}

// begin calls the BatchHandler inside the middleware of all events.
func (c *batchCall) begin() {
	ds := make([]*Delivery, len(c.runs))
	for i, r := range c.runs {
		if ds[i], c.results[i] = c.deliver(r); c.results[i] == nil && c.handle == nil {
			ds[i].ctx = r.Context()
			c.live, c.indexes = append(c.live, ds[i]), append(c.indexes, i)
		}
	}
	if c.handle == nil {
		c.callLive(c.results)
		return
	}
	c.inner, c.reached, c.done = make([]error, len(ds)), make([]bool, len(ds)), make(chan struct{})
	c.callMiddleware(ds, 0)
	if slices.Contains(c.reached, true) {
		<-c.done // a middleware may have returned before the BatchHandler
	}
}

// callMiddleware calls the middleware of the events from i on, one inside the other, and the
// BatchHandler innermost.
func (c *batchCall) callMiddleware(ds []*Delivery, i int) {
	for ; i < len(ds); i++ {
		if c.results[i] != nil { // expired
			continue
		}
		ctx := context.WithValue(c.runs[i].Context(), callPositionKey{}, &callPosition{c, ds, i})
		c.results[i] = catchPanic(func() error { return c.handle(ctx, ds[i]) })
		if c.reached[i] {
			return // the others were handled inside
		}
	}
	c.callLive(c.inner)
}

// A callPosition tells innermost which event of which batch its call is for. It travels in the
// context, because a Handler gets only the event.
type callPosition struct {
	call *batchCall
	ds   []*Delivery
	at   int
}

type callPositionKey struct{}

// innermost is the Handler that the middleware of each event wraps. It calls the middleware of
// the next event, or the BatchHandler after the last one.
func innermost(ctx context.Context, d *Delivery) error {
	p, ok := ctx.Value(callPositionKey{}).(*callPosition)
	if !ok {
		return errLostContext
	}
	c := p.call
	d.ctx = ctx
	err := d.expired(c.o.DeadLetterExpired) // it may have expired while a middleware waited
	if c.called || c.reached[p.at] {        // a middleware calls it again for the event
		if err != nil {
			return err
		}
		return c.callHandler(ctx, []*Delivery{d})[0]
	}
	outermost := !slices.Contains(c.reached, true)
	c.reached[p.at] = true
	if err == nil {
		c.live, c.indexes = append(c.live, d), append(c.indexes, p.at)
	}
	c.callMiddleware(p.ds, p.at+1) //nolint:contextcheck // each event has the context of its run
	if outermost {
		defer close(c.done)
	}
	if err != nil {
		return err
	}
	return c.inner[p.at]
}

// errLostContext fails an event whose middleware has hidden the callPosition.
var errLostContext = fmt.Errorf("eventbus: a middleware passed on a context that is not derived from its own")

// callLive calls the BatchHandler with the live events, and sets their results.
func (c *batchCall) callLive(results []error) {
	c.called = true
	if len(c.live) == 0 {
		return
	}
	if c.handle != nil {
		c.startTimeout() // the time that the middleware took does not count
	}
	for i, err := range c.callHandler(c.ctx, c.live) {
		results[c.indexes[i]] = err
	}
}

// callHandler calls the BatchHandler, and returns one result for each event.
func (c *batchCall) callHandler(ctx context.Context, ds []*Delivery) []error {
	return batchResults(len(ds), func() []error { return c.calls(ctx, ds) })
}

// batchResults calls a batch handler for n events and returns n results. A panic is the result of
// every event.
func batchResults(n int, handle func() []error) (errs []error) {
	failure := catchPanic(func() error { errs = handle(); return nil })
	switch {
	case failure != nil:
		return slices.Repeat([]error{failure}, n)
	case errs == nil:
		return make([]error, n)
	case len(errs) != n:
		err := fmt.Errorf("eventbus: the batch handler returned %d results for %d events", len(errs), n)
		return slices.Repeat([]error{engine.Named("batch-results", err)}, n)
	}
	return slices.Clone(errs) // the handler may reuse its slice
}

// catchPanic calls f and returns its error, or a PanicError if f panics.
func catchPanic(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &observer.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
