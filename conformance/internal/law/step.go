package law

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/calls"
	"github.com/seed41896749/eventbus/conformance/internal/verbs"
)

// steps provides the methods with which laws call the backend under test. If a call fails, a
// method with an error result returns the error. Any other method fails the law if harm to
// the broker cannot be the cause.
type steps struct {
	*trial
	Backend backend.Backend
	Limits  backend.Limits
	reads   sync.WaitGroup
}

// Topic is the topic that steps use unless a law names another.
const Topic = "orders"

// Go runs f on another goroutine. The cleanup of the law waits until f has returned.
func (e *steps) Go(f func()) { e.reads.Go(f) }

// Verbs returns the optional verbs of the backend.
func (e *steps) Verbs() verbs.Verbs { return calls.VerbsOf(e.Backend) }

// VerbsOf returns the optional verbs of b, a backend of the law.
func (e *steps) VerbsOf(b backend.Backend) verbs.Verbs { return calls.VerbsOf(b) }

// Now returns the time by the clock of the backend, or by the clock of the process if the
// backend does not tell its time.
func (e *steps) Now() time.Time {
	e.Helper()
	if _, ok := backend.As[backend.Clocker](e.Backend); !ok {
		return time.Now()
	}
	now, err := e.Verbs().Now(e.Context(), Topic)
	e.Must(err)
	return now
}

// Attach adds a member to a group of [Topic].
func (e *steps) Attach(group string) backend.Source {
	e.Helper()
	return e.AttachAs(backend.Config{Group: group})
}

// AttachAs adds a member with the config c. [steps.Config] sets the zero fields of c.
func (e *steps) AttachAs(c backend.Config) backend.Source {
	e.Helper()
	return e.AttachTo(e.Backend, e.Config(c))
}

// Unconfirmed adds a member without ConfirmAcks. Even with [backend.Limits].FencedAcks, the
// member may acknowledge a delivery that it no longer holds.
func (e *steps) Unconfirmed(group string) backend.Source {
	e.Helper()
	c := e.Config(backend.Config{Group: group})
	c.ConfirmAcks = false
	return e.AttachTo(e.Backend, c)
}

// AttachTo adds a member on the backend b, with exactly this config.
func (e *steps) AttachTo(b backend.Backend, c backend.Config) backend.Source {
	e.Helper()
	var src backend.Source
	e.Persist("Attach", func() (err error) {
		src, err = b.Attach(e.Context(), c)
		return err
	})
	if src == nil {
		e.Failf("Attach: got neither a Source nor an error")
	}
	e.Cleanup(func() { src.Close() })
	return &member{Source: src, reads: &e.reads}
}

// Config returns c with ConfirmAcks set. If Topic, Lease or MaxInFlight is zero, Config sets
// it to a default.
func (e *steps) Config(c backend.Config) backend.Config {
	c.Topic, c.Lease = cmp.Or(c.Topic, Topic), cmp.Or(c.Lease, e.Lease)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1000)
	c.ConfirmAcks = true
	return c
}

// Publish stores ms. It divides ms into batches of at most the size that the backend
// allows.
func (e *steps) Publish(ms ...*backend.Message) []*backend.Message {
	e.Helper()
	batch := cmp.Or(e.Limits.Batch, 500)
	for i := 0; i < len(ms); i += batch {
		e.publishPart(ms[i:min(i+batch, len(ms))])
	}
	return ms
}

// publishPart publishes one batch.
func (e *steps) publishPart(ms []*backend.Message) {
	e.Helper()
	if e.Troubled { // the call may be repeated, and a repeated Publish must not store a message twice
		for _, m := range ms {
			m.Once = e.Limits.OnceWindow > 0
		}
	}
	e.Persist("Publish", func() error { return e.Send(ms...) })
}

// Send calls the backend's Publish one time. The topic of a message without a topic is
// [Topic].
func (e *steps) Send(ms ...*backend.Message) error {
	for _, m := range ms {
		m.Topic = cmp.Or(m.Topic, Topic)
	}
	return e.Backend.Publish(e.Context(), ms)
}

// PublishN publishes n messages whose IDs are numbers.
func (e *steps) PublishN(n int) []*backend.Message {
	e.Helper()
	return e.Publish(Numbered("", n)...)
}

// Numbered returns n messages whose IDs are prefix followed by 0000, 0001, and so on.
func Numbered(prefix string, n int) []*backend.Message {
	ms := make([]*backend.Message, n)
	for i := range ms {
		id := fmt.Sprintf("%s%04d", prefix, i)
		ms[i] = &backend.Message{ID: id, Payload: []byte("payload of " + id)}
	}
	return ms
}

// Take calls Receive one time, and expects at most max deliveries. An error fails the law,
// unless ctx is done or harm to the broker may be the cause.
func (e *steps) Take(ctx context.Context, src backend.Source, max int) []backend.Delivery {
	e.Helper()
	return e.TakeBytes(ctx, src, max, 0)
}

// TakeBytes is like Take, with a bound in bytes.
func (e *steps) TakeBytes(ctx context.Context, src backend.Source, max int, maxBytes int64) []backend.Delivery {
	e.Helper()
	ds, err := src.Receive(ctx, max, maxBytes)
	if len(ds) > max {
		e.Failf("Receive of at most %d: got %d", max, len(ds))
	}
	if err != nil && ctx.Err() == nil {
		if !e.Troubled || !Passing(err) {
			e.Failf("Receive: got error %v, want none", err)
		}
		time.Sleep(Pause)
	}
	for i := range ds {
		if ds[i].Err != nil {
			e.Failf("delivery %q: got error %v, want none", ds[i].ID, ds[i].Err)
		}
	}
	return slices.Clone(ds) // deliveries are lent until the next Receive
}

// Receive waits for exactly n deliveries.
func (e *steps) Receive(src backend.Source, n int) []backend.Delivery {
	e.Helper()
	ds := e.ReceiveWithin(src, n, e.Patience())
	if len(ds) < n {
		e.Failf("got %d deliveries %v within %v, want %d", len(ds), IDs(ds), e.Patience(), n)
	}
	return ds
}

// One waits for one delivery.
func (e *steps) One(src backend.Source) backend.Delivery {
	e.Helper()
	return e.Receive(src, 1)[0]
}

// ReceiveWithin calls Receive until it has n deliveries or d has passed.
func (e *steps) ReceiveWithin(src backend.Source, n int, d time.Duration) (all []backend.Delivery) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), d)
	defer cancel()
	for len(all) < n && ctx.Err() == nil {
		all = append(all, e.Take(ctx, src, n-len(all))...)
	}
	return all
}

// Background calls Receive on another goroutine until a call returns deliveries or an
// error, or ctx is done. The channel gets the outcome.
func (e *steps) Background(ctx context.Context, src backend.Source, max int) <-chan Received {
	c := make(chan Received, 1)
	start := time.Now()
	e.Go(func() {
		var ds []backend.Delivery
		var err error
		for len(ds) == 0 && err == nil && ctx.Err() == nil {
			ds, err = src.Receive(ctx, max, 0)
		}
		c <- Received{ds, err, time.Since(start)}
	})
	return c
}

// Nothing fails the law if src receives a delivery within d. It returns after d. If its
// last Receive has not returned then, the next Receive of src waits for it.
func (e *steps) Nothing(src backend.Source, d time.Duration, why string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), d)
	defer cancel()
	end := time.After(d)
	m := src.(*member)
	for ctx.Err() == nil {
		select {
		case r := <-m.reading(ctx, 1):
			m.read = nil
			if len(r.Deliveries) > 0 {
				e.Failf("got delivery %q, attempt %d, want none: %s", r.Deliveries[0].ID, r.Deliveries[0].Attempt, why)
			}
			if r.Err != nil && ctx.Err() == nil && !errors.Is(r.Err, context.Canceled) && !errors.Is(r.Err, context.DeadlineExceeded) {
				e.Failf("Receive: got error %v, want none", r.Err)
			}
		case <-end:
			return
		}
	}
}

// Ack acknowledges ds. If harm to the broker loses the answer of src, Ack calls src again.
// With FencedAcks a later call may return ErrLeaseLost, because the first call may have taken
// effect. In this case Ack accepts the error.
func (e *steps) Ack(src backend.Source, ds ...backend.Delivery) {
	e.Helper()
	open := false
	e.Persist("Ack", func() error {
		err := src.Ack(e.Context(), backend.Lend(ds))
		if open && e.Limits.FencedAcks && OnlyLost(err) {
			return nil
		}
		open = open || errors.Is(err, backend.ErrUnknownOutcome)
		return err
	})
}

// OnlyLost reports whether each error in err matches [backend.ErrLeaseLost].
func OnlyLost(err error) bool {
	if all, ok := errors.AsType[backend.BatchError](err); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !OnlyLost(err) })
	}
	return errors.Is(err, backend.ErrLeaseLost)
}

// Delay gives ds back for d and returns the error of [backend.Delayer].
func (e *steps) Delay(src backend.Source, d time.Duration, ds ...backend.Delivery) error {
	delayed := make([]backend.Delayed, len(ds))
	for i := range ds {
		delayed[i] = backend.Delayed{Delivery: ds[i], For: d}
	}
	v, _ := backend.As[backend.Delayer](src)
	return v.Delay(e.Context(), delayed)
}

// Extend extends the leases of ds and returns the error of [backend.Extender].
func (e *steps) Extend(src backend.Source, ds ...backend.Delivery) error {
	v, _ := backend.As[backend.Extender](src)
	return v.Extend(e.Context(), backend.Lend(ds))
}

// Maintain calls Maintain for [Topic] and a group, if the backend has this verb.
func (e *steps) Maintain(group string) {
	e.Helper()
	if _, ok := backend.As[backend.Maintainer](e.Backend); ok {
		_, err := e.Verbs().Maintain(e.Context(), Topic, group)
		e.Must(err)
	}
}

// Attempt expects that d has the attempt number want, or 0 if the backend does not count
// attempts.
func (e *steps) Attempt(d backend.Delivery, want int) {
	e.Helper()
	if d.Attempt != want && d.Attempt != 0 {
		e.Failf("delivery %q: got attempt %d, want %d (or 0, not counted)", d.ID, d.Attempt, want)
	}
}

// IDs lists the IDs of deliveries.
func IDs(ds []backend.Delivery) []string {
	s := make([]string, len(ds))
	for i := range ds {
		s[i] = ds[i].ID
	}
	return s
}

// IDsOf lists the IDs of messages.
func IDsOf(ms []*backend.Message) []string {
	s := make([]string, len(ms))
	for i := range ms {
		s[i] = ms[i].ID
	}
	return s
}
