package contract

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var closeLaws = []law.Law{
	{
		ID: "C45", Name: "ping", Promise: "Ping returns nil while the backend is open and ErrClosed afterwards",
		Needs:  []law.Need{law.NeedVerb[backend.Pinger]()},
		Faults: []string{"closed-answers"}, Test: ping,
	}, {
		ID: "S04", Name: "close-idempotent", Promise: "closing again, even concurrently, is not an error",
		Faults: []string{"settle-once"}, Test: closeIdempotent,
	}, {
		ID: "C46", Name: "closed-source", Promise: "every method of a closed source returns ErrClosed, and its group continues",
		Faults: []string{"closed-works", "closed-answers", "settle-none-refused", "calls-ignore-contexts"}, Test: closedSource,
	}, {
		ID: "C47", Name: "closed-backend", Promise: "a closed backend and its sources return ErrClosed",
		Faults: []string{"closed-works", "closed-answers"}, Test: closedBackend,
	}, {
		ID: "C48", Name: "close-ends-receive", Promise: "a waiting Receive returns ErrClosed when its source or backend is closed",
		Faults: []string{"closed-answers"}, Test: closeEndsReceive,
	},
}

func ping(e *law.Env) {
	e.Verb(e.Verbs().Ping(e.Context()))
	e.Must(e.Backend.Close())
	e.Is("Ping after Close", e.Verbs().Ping(e.Context()), backend.ErrClosed)
}

func closeIdempotent(e *law.Env) {
	src := e.Attach("g")
	for _, closer := range []func() error{src.Close, e.Backend.Close, src.Close} {
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = closer() })
		}
		wg.Wait()
		e.Must(errors.Join(errs...))
		e.Must(closer())
	}
}

// closed expects ErrClosed from every call on a source, whatever its arguments.
func closed(e *law.Env, src backend.Source, d backend.Delivery) {
	e.Helper()
	done, cancel := context.WithCancel(e.Context())
	cancel()
	for _, c := range []struct {
		with string
		ctx  context.Context
		ds   []backend.Delivery
	}{
		{"", e.Bounded(), []backend.Delivery{d}}, {" of none", e.Bounded(), nil}, {" with a context that is done", done, []backend.Delivery{d}},
	} {
		_, err := src.Receive(c.ctx, len(c.ds), 0)
		e.Is("Receive"+c.with, err, backend.ErrClosed)
		e.Is("Ack"+c.with, src.Ack(c.ctx, backend.Lend(c.ds)), backend.ErrClosed)
		if v, ok := backend.As[backend.Delayer](src); ok {
			delayed := make([]backend.Delayed, len(c.ds))
			for i, d := range c.ds {
				delayed[i].Delivery = d
			}
			e.Is("Delay"+c.with, v.Delay(c.ctx, delayed), backend.ErrClosed)
		}
		if v, ok := backend.As[backend.Extender](src); ok {
			e.Is("Extend"+c.with, v.Extend(c.ctx, backend.Lend(c.ds)), backend.ErrClosed)
		}
	}
}

func closedSource(e *law.Env) {
	src, other := e.Attach("g"), e.Attach("g")
	e.PublishN(1)
	d := e.One(src)
	e.Must(src.Close())
	closed(e, src, d)
	e.Publish(&backend.Message{ID: "next"})
	if got := e.One(other); got.ID != "next" {
		e.Failf("another member got %q, want what was published next", got.ID)
	}
}

func closedBackend(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(1)
	d := e.One(src)
	e.Must(e.Backend.Close())
	closed(e, src, d)
	err := e.Send(law.Numbered("", 1)...)
	e.Is("Publish", err, backend.ErrClosed)
	if !backend.NotStored(backend.ErrorAt(err, 0)) {
		e.Failf("Publish: got %v, want an error that says that nothing is stored", err)
	}
	_, err = e.Backend.Attach(e.Context(), e.Config(backend.Config{Group: "g"}))
	e.Is("Attach", err, backend.ErrClosed)
	if e.Claims(law.NeedVerb[backend.Reader]()) {
		_, err = e.Verbs().Read(e.Context(), law.Topic, "", 1)
		e.Is("Read", err, backend.ErrClosed)
	}
	if e.Claims(law.NeedVerb[backend.Statser]()) {
		_, err = e.Verbs().Stats(e.Context(), law.Topic, "g")
		e.Is("Stats", err, backend.ErrClosed)
	}
	if e.Claims(law.NeedVerb[backend.Remover]()) {
		e.Is("Remove", e.Verbs().Remove(e.Context(), law.Topic, []string{d.Position}), backend.ErrClosed)
	}
	if e.Claims(law.NeedVerb[backend.Pinger]()) {
		e.Is("Ping", e.Verbs().Ping(e.Context()), backend.ErrClosed)
	}
	if e.Claims(law.NeedVerb[backend.Admin]()) {
		_, err = e.Verbs().Topics(e.Context())
		e.Is("Topics", err, backend.ErrClosed)
		e.Is("DeleteTopic", e.Verbs().DeleteTopic(e.Context(), law.Topic), backend.ErrClosed)
		_, err = e.Verbs().Groups(e.Context(), law.Topic)
		e.Is("Groups", err, backend.ErrClosed)
		e.Is("DeleteGroup", e.Verbs().DeleteGroup(e.Context(), law.Topic, "g"), backend.ErrClosed)
		e.Is("ResetGroup", e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartEarliest), backend.ErrClosed)
	}
	if e.Claims(law.NeedVerb[backend.Maintainer]()) {
		_, err = e.Verbs().Maintain(e.Context(), law.Topic, "g")
		e.Is("Maintain", err, backend.ErrClosed)
	}
}

func closeEndsReceive(e *law.Env) {
	one, two := e.Attach("g"), e.Attach("g")
	for _, c := range []struct {
		src   backend.Source
		close func() error
	}{{one, one.Close}, {two, e.Backend.Close}} {
		waiting := e.Background(e.Bounded(), c.src, 1)
		time.Sleep(e.Lease / 4)
		start := time.Now()
		e.Must(c.close())
		r := <-waiting
		e.Is("Receive", r.Err, backend.ErrClosed)
		e.By(start, 0, "Receive returned")
	}
}
