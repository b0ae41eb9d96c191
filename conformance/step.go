package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// The steps that laws are made of.

// attach makes a new member of a group of the usual topic.
func (e *driverEnv) attach(group string) backend.Source {
	e.Helper()
	return e.attachAs(backend.Config{Group: group})
}

// attachAs attaches with a config whose missing fields are filled in.
func (e *driverEnv) attachAs(c backend.Config) backend.Source {
	e.Helper()
	return e.attachTo(e.b, e.config(c))
}

// unconfirmed attaches a member that does not ask for confirmation. The member may
// then acknowledge deliveries that it no longer holds.
func (e *driverEnv) unconfirmed(group string) backend.Source {
	e.Helper()
	c := e.config(backend.Config{Group: group})
	c.ConfirmAcks = false
	return e.attachTo(e.b, c)
}

// attachTo attaches with exactly this config.
func (e *driverEnv) attachTo(b backend.Backend, c backend.Config) backend.Source {
	e.Helper()
	var src backend.Source
	e.persist("Attach", func() (err error) {
		src, err = b.Attach(e.Context(), c)
		return err
	})
	if src == nil {
		e.failf("Attach: got neither a Source nor an error")
	}
	e.Cleanup(func() { src.Close() })
	return &member{Source: src, reads: &e.reads}
}

func (e *driverEnv) config(c backend.Config) backend.Config {
	c.Topic, c.Lease = cmp.Or(c.Topic, topic), cmp.Or(c.Lease, e.lease)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1000)
	c.ConfirmAcks = true
	return c
}

// publish stores ms, in batches that the backend takes.
func (e *driverEnv) publish(ms ...*backend.Message) []*backend.Message {
	e.Helper()
	batch := cmp.Or(e.limits.Batch, 500)
	for i := 0; i < len(ms); i += batch {
		e.publishPart(ms[i:min(i+batch, len(ms))])
	}
	return ms
}

func (e *driverEnv) publishPart(ms []*backend.Message) {
	e.Helper()
	if e.troubled { // what may be repeated must not be stored twice
		for _, m := range ms {
			m.Once = e.limits.OnceWindow > 0
		}
	}
	e.persist("Publish", func() error { return e.send(ms...) })
}

// send is one Publish, to the usual topic if a message names no other.
func (e *driverEnv) send(ms ...*backend.Message) error {
	for _, m := range ms {
		m.Topic = cmp.Or(m.Topic, topic)
	}
	return e.b.Publish(e.Context(), ms)
}

// publishN publishes n messages whose IDs are numbers.
func (e *driverEnv) publishN(n int) []*backend.Message {
	e.Helper()
	return e.publish(numbered("", n)...)
}

// numbered returns n messages whose IDs are prefix and a number.
func numbered(prefix string, n int) []*backend.Message {
	ms := make([]*backend.Message, n)
	for i := range ms {
		id := fmt.Sprintf("%s%04d", prefix, i)
		ms[i] = &backend.Message{ID: id, Payload: []byte("payload of " + id)}
	}
	return ms
}

// take is one Receive. It expects what holds for each: at most max, and an error
// only if ctx is done.
func (e *driverEnv) take(ctx context.Context, src backend.Source, max int) []backend.Delivery {
	e.Helper()
	ds, err := src.Receive(ctx, max)
	if len(ds) > max {
		e.failf("Receive of at most %d: got %d", max, len(ds))
	}
	if err != nil && ctx.Err() == nil {
		if !e.troubled || !passing(err) {
			e.failf("Receive: got error %v, want none", err)
		}
		time.Sleep(pause)
	}
	for i := range ds {
		if ds[i].Err != nil {
			e.failf("delivery %q: got error %v, want none", ds[i].ID, ds[i].Err)
		}
	}
	return slices.Clone(ds) // they are lent until the next Receive
}

// receive waits for exactly n deliveries.
func (e *driverEnv) receive(src backend.Source, n int) []backend.Delivery {
	e.Helper()
	ds := e.receiveWithin(src, n, e.patience())
	if len(ds) < n {
		e.failf("got %d deliveries %v within %v, want %d", len(ds), ids(ds), e.patience(), n)
	}
	return ds
}

// one waits for one delivery.
func (e *driverEnv) one(src backend.Source) backend.Delivery {
	e.Helper()
	return e.receive(src, 1)[0]
}

// receiveWithin returns the deliveries of the next d, and at most n of them.
func (e *driverEnv) receiveWithin(src backend.Source, n int, d time.Duration) (all []backend.Delivery) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), d)
	defer cancel()
	for len(all) < n && ctx.Err() == nil {
		all = append(all, e.take(ctx, src, n-len(all))...)
	}
	return all
}

// nothing expects no delivery within d, and takes no longer than d: a Receive
// that does is waited for by the next one.
func (e *driverEnv) nothing(src backend.Source, d time.Duration, why string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), d)
	defer cancel()
	end := time.After(d)
	m := src.(*member)
	for ctx.Err() == nil {
		select {
		case r := <-m.reading(ctx, 1):
			m.read = nil
			if len(r.ds) > 0 {
				e.failf("got delivery %q, attempt %d, want none: %s", r.ds[0].ID, r.ds[0].Attempt, why)
			}
			if r.err != nil && ctx.Err() == nil && !errors.Is(r.err, context.Canceled) && !errors.Is(r.err, context.DeadlineExceeded) {
				e.failf("Receive: got error %v, want none", r.err)
			}
		case <-end:
			return
		}
	}
}

// ack acknowledges ds. A fenced Ack that is repeated after its answer was lost is
// told of a lost lease, as the first may have acknowledged.
func (e *driverEnv) ack(src backend.Source, ds ...backend.Delivery) {
	e.Helper()
	open := false
	e.persist("Ack", func() error {
		err := src.Ack(e.Context(), backend.Lend(ds))
		if open && e.limits.FencedAcks && onlyLost(err) {
			return nil
		}
		open = open || errors.Is(err, backend.ErrUnknownOutcome)
		return err
	})
}

// onlyLost reports whether err is of lost leases and nothing else.
func onlyLost(err error) bool {
	if all, ok := errors.AsType[backend.BatchError](err); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !onlyLost(err) })
	}
	return errors.Is(err, backend.ErrLeaseLost)
}

// delay gives ds back and returns what the verb says.
func (e *driverEnv) delay(src backend.Source, d time.Duration, ds ...backend.Delivery) error {
	delayed := make([]backend.Delayed, len(ds))
	for i := range ds {
		delayed[i] = backend.Delayed{Delivery: ds[i], For: d}
	}
	v, _ := backend.As[backend.Delayer](src)
	return v.Delay(e.Context(), delayed)
}

// extend restarts the lease of ds and returns what the verb says.
func (e *driverEnv) extend(src backend.Source, ds ...backend.Delivery) error {
	v, _ := backend.As[backend.Extender](src)
	return v.Extend(e.Context(), backend.Lend(ds))
}

// maintain calls Maintain of the backend, if it has one.
func (e *driverEnv) maintain(group string) {
	e.Helper()
	if needMaintainer.claimed(e) {
		_, err := e.verbs().Maintain(e.Context(), topic, group)
		e.must(err)
	}
}

// attempt expects an attempt number, where the backend counts.
func (e *driverEnv) attempt(d backend.Delivery, want int) {
	e.Helper()
	if d.Attempt != want && d.Attempt != 0 {
		e.failf("delivery %q: got attempt %d, want %d (or 0, not counted)", d.ID, d.Attempt, want)
	}
}

func ids(ds []backend.Delivery) []string {
	s := make([]string, len(ds))
	for i := range ds {
		s[i] = ds[i].ID
	}
	return s
}

func idsOf(ms []*backend.Message) []string {
	s := make([]string, len(ms))
	for i := range ms {
		s[i] = ms[i].ID
	}
	return s
}
