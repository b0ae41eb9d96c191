package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

var publishLaws = []law{
	{
		id: "P01", name: "publish-deliver", promise: "every message of every publisher reaches every group, once",
		saboteurs: []string{"loses-some", "publishes-twice"}, driver: publishDeliver,
	}, {
		id: "D01", name: "waves", promise: "a topic that fills and empties many times loses nothing and repeats nothing",
		saboteurs: []string{"loses-some", "ignores-acks"}, driver: waves,
	}, {
		id: "P12", name: "publisher-order", promise: "messages of one publisher are received in the order of publishing",
		saboteurs: []string{"reverses-reads"}, driver: publisherOrder,
	}, {
		id: "C01", name: "batch-of-topics", promise: "of a batch over several topics, each topic gets its own, in order",
		saboteurs: []string{"first-topic-wins"}, driver: batchOfTopics,
	}, {
		id: "P16", name: "names", promise: "topics and groups whose names differ in anything are apart",
		saboteurs: []string{"folds-topics", "folds-groups"}, driver: names,
	}, {
		id: "P11", name: "too-large", promise: "a message over the limit is refused as too large, one at the limit is not",
		needs:     []need{needPayloadLimit},
		saboteurs: []string{"blurs-errors", "cuts-large"}, driver: tooLarge,
	}, {
		id: "P13", name: "batch-partial", promise: "one message that is refused does not keep the others of its batch from being stored, and the errors say which",
		needs:     []need{needPayloadLimit},
		saboteurs: []string{"blurs-batches", "hides-failures"}, driver: batchPartial,
	}, {
		id: "P14", name: "publish-done-context", promise: "a Publish whose context is done stores nothing and says so",
		saboteurs: []string{"ignores-publish-context"}, driver: publishDoneContext,
	}, {
		id: "P10", name: "full-store", promise: "a full store refuses with ErrFull, keeps what it has, and takes more when there is room",
		needs:     []need{needBound},
		saboteurs: []string{"hides-failures", "drops-oldest"}, driver: fullStore,
	},
}

func publishDeliver(e *driverEnv) {
	const publishers, each = 4, 50
	groups := []string{"a", "b", "c"}
	var sources []backend.Source
	for _, g := range groups {
		sources = append(sources, e.attach(g))
	}
	errs := make([]error, publishers)
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for _, m := range numbered(string(rune('a'+p)), each) {
				errs[p] = errors.Join(errs[p], e.send(m))
			}
		})
	}
	wg.Wait()
	e.must(errors.Join(errs...))
	for i, src := range sources {
		ds := e.receive(src, publishers*each)
		e.ack(src, ds...)
		got := ids(ds)
		slices.Sort(got)
		if n := len(slices.Compact(got)); n != publishers*each {
			e.failf("group %s got %d different messages, want %d", groups[i], n, publishers*each)
		}
		e.nothing(src, e.lease/2, "group "+groups[i]+" got all that was published")
	}
}

func waves(e *driverEnv) {
	src := e.attach("g")
	for wave := range 30 {
		want := idsOf(e.publish(numbered(fmt.Sprintf("%d-", wave), 20+wave)...))
		ds := e.receive(src, len(want))
		if got := ids(ds); !slices.Equal(got, want) {
			e.failf("wave %d: got %v, want %v", wave, got, want)
		}
		e.ack(src, ds...)
	}
	e.nothing(src, e.lease+e.soon(), "all is acknowledged")
}

func publisherOrder(e *driverEnv) {
	src := e.attach("g")
	var want []string
	for _, n := range []int{1, 2, 7, 40, 1, 150} {
		batch := numbered(string(rune('a'+len(want)%26)), n)
		e.publish(batch...)
		want = append(want, idsOf(batch)...)
	}
	if got := ids(e.receive(src, len(want))); !slices.Equal(got, want) {
		e.failf("got  %v\nwant %v", got, want)
	}
}

func batchOfTopics(e *driverEnv) {
	batch := []*backend.Message{
		{Topic: "a", ID: "1"}, {Topic: "b", ID: "2"}, {Topic: "a", ID: "3"}, {Topic: "c", ID: "4"}, {Topic: "b", ID: "5"},
	}
	e.publish(batch...)
	for name, want := range map[string][]string{"a": {"1", "3"}, "b": {"2", "5"}, "c": {"4"}} {
		src := e.attachAs(backend.Config{Topic: name, Group: "g"})
		ds := e.receive(src, len(want))
		for i, d := range ds {
			if j := slices.IndexFunc(batch, func(m *backend.Message) bool { return m.ID == want[i] }); d.ID != want[i] ||
				d.Topic != name || d.Position != batch[j].Position {
				e.failf("topic %s, delivery %d: got topic %s, id %s, position %s, want %s and %s", name, i, d.Topic, d.ID, d.Position, want[i], batch[j].Position)
			}
		}
		e.nothing(src, e.lease/4, "topic "+name+" has no more")
	}
}

func names(e *driverEnv) {
	long := strings.Repeat("x", backend.MaxName-1)
	all := []string{"a.b", "a-b", "a_b", "a.B", "ab", "A.b", "a.b.c", "0", "-", "_", long + "y", long + "z"}
	var sources []backend.Source
	for _, name := range all {
		sources = append(sources, e.attach(name))
	}
	e.publish(&backend.Message{ID: "to all groups"})
	for i, src := range sources {
		if ds := e.receiveWithin(src, 1, e.soon()); len(ds) != 1 {
			e.failf("group %s got %d messages, want 1", all[i], len(ds))
		}
		e.must(src.Close())
	}
	for _, name := range all {
		e.publish(&backend.Message{Topic: name, ID: name})
	}
	for _, name := range all {
		src := e.attachAs(backend.Config{Topic: name, Group: "g"})
		d := e.one(src)
		if d.ID != name || d.Topic != name {
			e.failf("topic %s: got message %s of topic %s", name, d.ID, d.Topic)
		}
		e.ack(src, d)
		e.nothing(src, e.lease/10, "topic "+name+" has one message")
		e.must(src.Close())
	}
}

func tooLarge(e *driverEnv) {
	src := e.attach("g")
	limit := e.limits.Payload
	e.publish(&backend.Message{ID: "fits", Payload: make([]byte, limit-len("fits"))})
	d := e.one(src)
	if len(d.Payload) != limit-len("fits") {
		e.failf("got a payload of %d bytes, want %d", len(d.Payload), limit-len("fits"))
	}
	e.ack(src, d)
	err := e.send(&backend.Message{ID: "large", Payload: make([]byte, limit)})
	e.is("Publish of more than the limit", err, backend.ErrTooLarge)
	if !backend.NotStored(backend.ErrorAt(err, 0)) {
		e.failf("got %v, want an error that says that nothing is stored", err)
	}
	e.publish(&backend.Message{ID: "small"})
	if d := e.one(src); d.ID != "small" {
		e.failf("got %q, want the next message", d.ID)
	}
}

func batchPartial(e *driverEnv) {
	src := e.attach("g")
	batch := numbered("", 5)
	batch[1].Payload = make([]byte, e.limits.Payload)
	batch[4].Payload = make([]byte, e.limits.Payload)
	err := e.send(batch...)
	for i, m := range batch {
		var want error
		if i == 1 || i == 4 {
			want = backend.ErrTooLarge
		}
		if got := backend.ErrorAt(err, i); !errors.Is(got, want) || (want == nil && got != nil) {
			e.failf("message %d: got error %v, want %v", i, got, want)
		}
		if want == nil && m.Position == "" {
			e.failf("message %d: got no position", i)
		}
	}
	if got, want := ids(e.receive(src, 3)), []string{"0000", "0002", "0003"}; !slices.Equal(got, want) {
		e.failf("got %v, want %v", got, want)
	}
	e.nothing(src, e.lease/4, "the others were refused")
}

func publishDoneContext(e *driverEnv) {
	src := e.attach("g")
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	ms := numbered("", 3)
	for _, m := range ms {
		m.Topic = topic
	}
	err := e.b.Publish(ctx, ms)
	e.is("Publish", err, context.Canceled)
	for i := range ms {
		if at := backend.ErrorAt(err, i); !backend.NotStored(at) && !errors.Is(at, backend.ErrUnknownOutcome) {
			e.failf("message %d: got error %v, want one that says whether it may be stored", i, at)
		}
	}
	e.nothing(src, e.lease/2, "the context was done before Publish")
}

func fullStore(e *driverEnv) {
	const room = 8
	e.openBounded(room)
	src := e.attach("g")
	var stored []string
	for _, m := range numbered("", 4*room) {
		err := e.send(m)
		if err == nil {
			stored = append(stored, m.ID)
			continue
		}
		e.is("Publish", err, backend.ErrFull)
	}
	if len(stored) == 0 || len(stored) == 4*room {
		e.failf("%d of %d were stored, want about %d", len(stored), 4*room, room)
	}
	ds := e.receive(src, len(stored))
	if got := ids(ds); !slices.Equal(got, stored) {
		e.failf("got %v, want what was stored: %v", got, stored)
	}
	e.ack(src, ds...)
	e.maintain("g")
	e.publish(&backend.Message{ID: "later"})
	if d := e.one(src); d.ID != "later" {
		e.failf("got %q, want what was published when there was room", d.ID)
	}
}
