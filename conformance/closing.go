package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var closeLaws = []law{
	{
		id: "C45", name: "ping", promise: "Ping is nil while the backend is open and ErrClosed after",
		needs:     []need{needPinger},
		saboteurs: []string{"pings-for-ever"}, driver: ping,
	}, {
		id: "S04", name: "close-idempotent", promise: "closing again, also at the same time, is not an error",
		saboteurs: []string{"closes-once"}, driver: closeIdempotent,
	}, {
		id: "C46", name: "closed-source", promise: "a closed source answers ErrClosed, and its group goes on",
		saboteurs: []string{"sources-never-close"}, driver: closedSource,
	}, {
		id: "C47", name: "closed-backend", promise: "a closed backend and its sources answer ErrClosed",
		saboteurs: []string{"never-closes"}, driver: closedBackend,
	}, {
		id: "C48", name: "close-ends-receive", promise: "a Receive that waits returns ErrClosed when its source or its backend is closed",
		saboteurs: []string{"deaf-to-close"}, driver: closeEndsReceive,
	},
}

// bounded returns a context for calls that should end by themselves.
func (e *driverEnv) bounded() context.Context {
	ctx, cancel := context.WithTimeout(e.Context(), e.patience())
	e.Cleanup(cancel)
	return ctx
}

func ping(e *driverEnv) {
	e.verb(e.verbs().Ping(e.Context()))
	e.must(e.b.Close())
	e.is("Ping after Close", e.verbs().Ping(e.Context()), backend.ErrClosed)
}

func closeIdempotent(e *driverEnv) {
	src := e.attach("g")
	for _, closer := range []func() error{src.Close, e.b.Close, src.Close} {
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = closer() })
		}
		wg.Wait()
		e.must(errors.Join(errs...))
		e.must(closer())
	}
}

// closed expects that a source refuses every call.
func (e *driverEnv) closed(src backend.Source, d backend.Delivery) {
	e.Helper()
	_, err := src.Receive(e.bounded(), 1)
	e.is("Receive", err, backend.ErrClosed)
	e.is("Ack", src.Ack(e.Context(), []*backend.Delivery{&d}), backend.ErrClosed)
	if _, ok := backend.As[backend.Delayer](src); ok {
		e.is("Delay", e.delay(src, 0, d), backend.ErrClosed)
	}
	if _, ok := backend.As[backend.Extender](src); ok {
		e.is("Extend", e.extend(src, d), backend.ErrClosed)
	}
}

func closedSource(e *driverEnv) {
	src, other := e.attach("g"), e.attach("g")
	e.publishN(1)
	d := e.one(src)
	e.must(src.Close())
	e.closed(src, d)
	e.publish(&backend.Message{ID: "next"})
	if got := e.one(other); got.ID != "next" {
		e.failf("another member got %q, want what was published next", got.ID)
	}
}

func closedBackend(e *driverEnv) {
	src := e.attach("g")
	e.publishN(1)
	d := e.one(src)
	e.must(e.b.Close())
	e.closed(src, d)
	err := e.send(numbered("", 1)...)
	e.is("Publish", err, backend.ErrClosed)
	if !backend.NotStored(backend.ErrorAt(err, 0)) {
		e.failf("Publish: got %v, want an error that says that nothing is stored", err)
	}
	_, err = e.b.Attach(e.Context(), e.config(backend.Config{Group: "g"}))
	e.is("Attach", err, backend.ErrClosed)
	if needReader.claimed(e) {
		_, err = e.verbs().Read(e.Context(), topic, "", 1)
		e.is("Read", err, backend.ErrClosed)
	}
	if needStatser.claimed(e) {
		_, err = e.verbs().Stats(e.Context(), topic, "g")
		e.is("Stats", err, backend.ErrClosed)
	}
	if needAdmin.claimed(e) {
		_, err = e.verbs().Topics(e.Context())
		e.is("Topics", err, backend.ErrClosed)
		e.is("DeleteTopic", e.verbs().DeleteTopic(e.Context(), topic), backend.ErrClosed)
	}
}

func closeEndsReceive(e *driverEnv) {
	one, two := e.attach("g"), e.attach("g")
	for _, c := range []struct {
		src   backend.Source
		close func() error
	}{{one, one.Close}, {two, e.b.Close}} {
		waiting := e.background(e.bounded(), c.src, 1)
		time.Sleep(e.lease / 4)
		start := time.Now()
		e.must(c.close())
		r := <-waiting
		e.is("Receive", r.err, backend.ErrClosed)
		e.by(start, 0, "Receive returned")
	}
}
