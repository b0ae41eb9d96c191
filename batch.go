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

// A BatchSubscriber subscribes handlers of batches to topics.
type BatchSubscriber interface {
	// SubscribeBatch makes h a member of the group o.Group of topic.
	SubscribeBatch(ctx context.Context, topic string, o SubscribeOptions, batch Batch, h BatchHandler) (*Subscription, error)
}

// SubscribeBatch is like Subscribe for a handler that takes several events in one call.
// Options have the same meaning for each event, with these differences:
//
//   - Concurrency is the most calls of h that run at the same time. Meanwhile the next
//     batches fill.
//   - Timeout bounds a call of h. On a backend that cannot extend leases, MaxWait plus
//     Timeout must be less than Lease.
//   - MaxInFlight must be at least Concurrency times MaxSize. Its default is the greater
//     of that product and 1,024. A limiter.MaxInFlight that several subscriptions share
//     must be greater than the sum of their products, see SubscribeOptions.Limiter.
//   - MaxRedelivered counts events, and must be less than Concurrency times MaxSize.
//   - With OrderByKey a batch has at most one event of each key, because an event runs only
//     after the event before it has succeeded. So batches stay small if there are few keys.
//     With Unordered a batch may have several events of a key. SubscribeBatch refuses
//     OrderTotal.
//
// The events of a batch have no particular order. Options.Middleware wraps the handling of
// each single event: the middlewares of all events of a batch are called one inside the
// other, and h innermost. With AckOnReceive the events of a batch are acknowledged before
// the call. A drain gives back the events whose call has not begun.
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

// A BatchHandler handles several events in one call. The result at index i is for the event
// ds[i] and means the same as the result of a [Handler]. So the bus settles each event by
// the event's own result. A nil slice means that all events are handled. A panic, or a
// slice of any other length than ds, fails every event of the call.
//
// An event on its last attempt is handled in a batch of its own, so that other events
// cannot fail it for good. An attempt counts as the last one if it reaches
// Retry.MaxAttempts, or the MaxAttempts of any of Retry.Rules. A MaxAttempts of 1 has no
// such effect: an event with a single attempt shares a batch.
//
// ctx carries the values of the context given to SubscribeBatch. It ends when the handler
// has returned, or when SubscribeOptions.Timeout has passed since the call (cause
// *observer.TimeoutError). It ends too when the contexts of all events of the batch have
// ended: their leases are lost, or the context of a Drain or Shutdown has ended. The result
// of an event whose lease is lost changes nothing.
type BatchHandler func(ctx context.Context, ds []*Delivery) []error

// A Batch says when a batch is full. A batch that is not full is handled when MaxWait has
// passed since its first event. A zero field means its default.
type Batch struct {
	// MaxSize is the most events of a batch. Default 100.
	MaxSize int

	// MaxBytes bounds the total size of the payloads of a batch, in bytes. A larger event
	// has a batch of its own. Default: no bound.
	MaxBytes int64

	// MaxWait is how long the first event of a batch waits for further events. If as many
	// calls of the handler run then as SubscribeOptions.Concurrency allows, the batch waits
	// until one returns, and fills meanwhile. Default 10 ms; negative: no wait.
	MaxWait time.Duration
}

// Effective returns b with the default in each zero field, as SubscribeBatch uses it. If
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

// Options returns o with the defaults that batches as b change. If [Bus.SubscribeBatch]
// refuses o with b, Options returns the same error. It lets a program check options before
// it subscribes.
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
		return o, &FieldError{Field: "SubscribeOptions.Order", Reason: "is OrderTotal, with which no batch has two events"}
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

// batches returns the handler of batches for the engine.
func (o Options) batches(m member) (engine.Batch, error) {
	b := engine.Batch{Batch: engine.Bounds{Size: m.batch.MaxSize, Bytes: m.batch.MaxBytes, Wait: max(m.batch.MaxWait, 0)}}
	least := leastAttempts(m.o.Retry.Rules)
	b.Alone = func(h *engine.Hold) bool {
		if h.Attempt < 2 { // the usual case, without reading the event
			return false
		}
		d := delivery(m.o.Group, h)
		d.MaxAttempts = m.attempts(d)
		return d.MaxAttempts > 1 && d.LastAttempt() || least > 0 && d.Attempt >= least
	}
	handle, err := o.wrap(reach)
	if err != nil {
		return b, err
	}
	if len(o.Middleware) == 0 {
		handle = nil
	}
	b.Handle = func(ctx context.Context, runs []*engine.Run, results []error, begins func()) {
		c := &batchCall{member: &m, ctx: ctx, runs: runs, results: results, begins: begins, handle: handle}
		c.begin() //nolint:contextcheck // it passes on the contexts of the runs
	}
	return b, nil
}

// A batchCall is one call of a BatchHandler.
type batchCall struct {
	*member
	ctx     context.Context
	runs    []*engine.Run
	results []error // of the runs
	begins  func()  // tells the engine that the time of the call begins
	handle  Handler // the middleware of single events around reach; nil: there is none

	live    []*Delivery // the events for the program
	places  []int       // of live, in runs
	inner   []error     // the results of the program, by run
	reached []bool      // by run: middleware has called reach
	called  bool        // the program was called
	done    chan struct{}
}

// begin calls the program, inside the middleware of all events.
func (c *batchCall) begin() {
	ds := make([]*Delivery, len(c.runs))
	for i, r := range c.runs {
		if ds[i], c.results[i] = c.deliver(r); c.results[i] == nil && c.handle == nil {
			ds[i].ctx = r.Context()
			c.live, c.places = append(c.live, ds[i]), append(c.places, i)
		}
	}
	if c.handle == nil {
		c.call(c.results)
		return
	}
	c.inner, c.reached, c.done = make([]error, len(ds)), make([]bool, len(ds)), make(chan struct{})
	c.enter(ds, 0)
	if slices.Contains(c.reached, true) {
		<-c.done // a middleware may have returned before the program
	}
}

// enter calls the middleware of the events from i on, one inside the other, and the program
// innermost.
func (c *batchCall) enter(ds []*Delivery, i int) {
	for ; i < len(ds); i++ {
		if c.results[i] != nil { // expired
			continue
		}
		ctx := context.WithValue(c.runs[i].Context(), nestKey{}, &nest{c, ds, i})
		c.results[i] = protected(func() error { return c.handle(ctx, ds[i]) })
		if c.reached[i] {
			return // the rest was handled inside
		}
	}
	c.call(c.inner)
}

// A nest is the place of one event in the calls of middleware of a batch.
type nest struct {
	call *batchCall
	ds   []*Delivery
	at   int
}

type nestKey struct{}

// reach is the innermost Handler of the middleware around one event of a batch.
func reach(ctx context.Context, d *Delivery) error {
	n, ok := ctx.Value(nestKey{}).(*nest)
	if !ok {
		return errLostContext
	}
	c := n.call
	d.ctx = ctx
	err := d.expired(c.o.DeadLetterExpired) // while middleware waited
	if c.called || c.reached[n.at] {        // a middleware repeats the event
		if err != nil {
			return err
		}
		return c.program(ctx, []*Delivery{d})[0]
	}
	outermost := !slices.Contains(c.reached, true)
	c.reached[n.at] = true
	if err == nil {
		c.live, c.places = append(c.live, d), append(c.places, n.at)
	}
	c.enter(n.ds, n.at+1) //nolint:contextcheck // each event has the context of its run
	if outermost {
		defer close(c.done)
	}
	if err != nil {
		return err
	}
	return c.inner[n.at]
}

var errLostContext = fmt.Errorf("eventbus: a middleware passed on a context that is not derived from its own")

// call calls the program with the live events, and sets their results.
func (c *batchCall) call(results []error) {
	c.called = true
	if len(c.live) == 0 {
		return
	}
	if c.handle != nil {
		c.begins() // the time of the middleware does not count
	}
	for i, err := range c.program(c.ctx, c.live) {
		results[c.places[i]] = err
	}
}

// program calls the BatchHandler, and returns one result for each event.
func (c *batchCall) program(ctx context.Context, ds []*Delivery) []error {
	return results(len(ds), func() []error { return c.calls(ctx, ds) })
}

// results calls a batch handler, and returns one result for each of its n events. A panic is
// the result of each event.
func results(n int, handle func() []error) (errs []error) {
	failure := protected(func() error { errs = handle(); return nil })
	switch {
	case failure != nil:
		return slices.Repeat([]error{failure}, n)
	case errs == nil:
		return make([]error, n)
	case len(errs) != n:
		err := fmt.Errorf("eventbus: the batch handler returned %d results for %d events", len(errs), n)
		return slices.Repeat([]error{engine.Named("batch-results", err)}, n)
	}
	return slices.Clone(errs) // the handler may use its slice again
}

// protected calls f and returns its error, or a PanicError if f panics.
func protected(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &observer.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
