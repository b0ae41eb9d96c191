package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// refuseLaws are about messages that Publish refuses.
var refuseLaws = []law.Law{
	{
		ID: "P11", Name: "too-large", Promise: "a message whose Size is over the limit is refused as too large, one at the limit is not",
		Needs:  []law.Need{law.NeedPayloadLimit},
		Faults: []string{"publish-hides-failures", "publish-cleans"}, Test: tooLarge,
	}, {
		ID: "P13", Name: "batch-partial", Promise: "one message that is refused does not keep the others of its batch from being stored, and the errors say which",
		Needs:  []law.Need{law.NeedPayloadLimit},
		Faults: []string{"batches-fail-as-one", "publish-hides-failures"}, Test: batchPartial,
	}, {
		ID: "P14", Name: "publish-done-context", Promise: "a Publish whose context is done stores nothing and says so",
		Faults: []string{"calls-ignore-contexts"}, Test: publishDoneContext,
	}, {
		ID: "P10", Name: "full-store", Promise: "a full store refuses with ErrFull, keeps what it has, and takes more when there is room",
		Needs:  []law.Need{law.NeedBound},
		Faults: []string{"publish-hides-failures", "batches-fail-as-one", "remove-ignored"}, Test: fullStore,
	},
}

// filled returns a message with a key, many headers and this Size.
func filled(id string, size int) *backend.Message {
	m := &backend.Message{ID: id, Key: "key"}
	for i := range 64 {
		m.Headers.Set(fmt.Sprintf("name-%d", i), "value")
	}
	m.Payload = make([]byte, size-m.Size())
	return m
}

func tooLarge(e *law.Env) {
	src := e.Attach("g")
	limit := e.Limits.Payload
	for _, m := range []*backend.Message{{ID: "fits", Payload: make([]byte, limit-len("fits"))}, filled("filled", limit)} {
		e.Publish(m)
		d := e.One(src)
		same(e, &d.Message, m)
		e.Ack(src, d)
	}
	for _, m := range []*backend.Message{{ID: "large", Payload: make([]byte, limit)}, filled("filled", limit+1)} {
		err := e.Send(m)
		e.Is(fmt.Sprintf("Publish of a message whose Size is %d, with a limit of %d", m.Size(), limit), err, backend.ErrTooLarge)
		if !backend.NotStored(backend.ErrorAt(err, 0)) {
			e.Failf("got %v, want an error that says that nothing is stored", err)
		}
	}
	e.Publish(&backend.Message{ID: "small"})
	if d := e.One(src); d.ID != "small" {
		e.Failf("got %q, want the next message", d.ID)
	}
}

func batchPartial(e *law.Env) {
	src := e.Attach("g")
	batch := law.Numbered("", 5)
	waiting := e.Background(e.Bounded(), src, 3)
	time.Sleep(e.Lease / 4)
	start := time.Now()
	publishTooLarge(e, batch, 1, 4)
	r := <-waiting
	e.By(start, 0, "the first of the others was received")
	e.Must(r.Err)
	got := law.IDs(r.Deliveries)
	if more := 3 - len(got); more > 0 {
		got = append(got, law.IDs(e.Receive(src, more))...)
	}
	if want := []string{"0000", "0002", "0003"}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
	e.Nothing(src, e.Lease/4, "the others were refused")
	topics := law.Numbered("topics-", 5)
	for i, m := range topics {
		m.Topic = []string{"a", "b"}[i%2]
	}
	publishTooLarge(e, topics, 2, 3)
}

// publishTooLarge publishes batch, in which the messages at the indices large are too large. Only
// these messages must have an error.
func publishTooLarge(e *law.Env, batch []*backend.Message, large ...int) {
	e.Helper()
	for _, i := range large {
		batch[i].Payload = make([]byte, e.Limits.Payload)
	}
	err := e.Send(batch...)
	for i, m := range batch {
		var want error
		if slices.Contains(large, i) {
			want = backend.ErrTooLarge
		}
		if got := backend.ErrorAt(err, i); !errors.Is(got, want) || (want == nil && got != nil) {
			e.Failf("message %d, topic %s: got error %v, want %v", i, m.Topic, got, want)
		}
		if want == nil && m.Position == "" {
			e.Failf("message %d: got no position", i)
		}
	}
}

func publishDoneContext(e *law.Env) {
	src := e.Attach("g")
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	ms := law.Numbered("", 3)
	for _, m := range ms {
		m.Topic = law.Topic
	}
	err := e.Backend.Publish(ctx, ms)
	e.Is("Publish", err, context.Canceled)
	for i := range ms {
		if at := backend.ErrorAt(err, i); !backend.NotStored(at) && !errors.Is(at, backend.ErrUnknownOutcome) {
			e.Failf("message %d: got error %v, want one that says whether it may be stored", i, at)
		}
	}
	e.Nothing(src, e.Lease/2, "the context was done before Publish")
}

func fullStore(e *law.Env) {
	const room = 8
	e.OpenBounded(room)
	src := e.Attach("g")
	var stored []string
	for _, m := range law.Numbered("", 4*room) {
		err := e.Send(m)
		if err == nil {
			stored = append(stored, m.ID)
			continue
		}
		e.Is("Publish", err, backend.ErrFull)
	}
	if len(stored) == 0 || len(stored) == 4*room {
		e.Failf("%d of %d were stored, want about %d", len(stored), 4*room, room)
	}
	ds := e.Receive(src, len(stored))
	if got := law.IDs(ds); !slices.Equal(got, stored) {
		e.Failf("got %v, want what was stored: %v", got, stored)
	}
	e.Ack(src, ds...)
	e.Maintain("g")
	e.Publish(&backend.Message{ID: "later"})
	d := e.One(src)
	if d.ID != "later" {
		e.Failf("got %q, want what was published when there was room", d.ID)
	}
	e.Ack(src, d)
	e.Maintain("g")
	fullBatch(e, src, 4*room)
	e.Maintain("g")
	if _, ok := backend.As[backend.Remover](e.Backend); ok {
		for range 4 * room { // Remove makes room, although the group has not settled the message
			removes(e, e.Publish(&backend.Message{ID: "to be removed"})...)
		}
	}
}

// fullBatch publishes a batch of n messages, for which the store has no room. Exactly the
// messages without an error must be stored.
func fullBatch(e *law.Env, src backend.Source, n int) {
	e.Helper()
	batch := law.Numbered("batch-", n)
	err := e.Send(batch...)
	var stored []string
	for i, m := range batch {
		at := backend.ErrorAt(err, i)
		if at == nil {
			stored = append(stored, m.ID)
			continue
		}
		e.Is(fmt.Sprintf("message %d of a batch", i), at, backend.ErrFull)
	}
	if len(stored) == n {
		e.Failf("a batch of %d messages was stored, want some of them refused", n)
	}
	ds := e.Receive(src, len(stored))
	if got := law.IDs(ds); !slices.Equal(got, stored) {
		e.Failf("got %v of a batch, want the messages that had no error: %v", got, stored)
	}
	e.Nothing(src, e.Lease/4, fmt.Sprintf("of a batch of %d messages, %d had an error, so they are not stored", n, n-len(stored)))
	e.Ack(src, ds...)
}
