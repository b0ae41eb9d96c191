package eventbus

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/observer"
)

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
