package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var publishLaws = []law.Law{
	{
		ID: "P01", Name: "publish-deliver", Promise: "every message of every publisher reaches every group, once",
		Saboteurs: []string{"loses-some", "publishes-twice"}, Test: publishDeliver,
	}, {
		ID: "P21", Name: "receive-while-published", Promise: "a member that receives while others publish gets every message, in the order of positions",
		Saboteurs: []string{"position-before-commit"}, Test: receiveWhilePublished,
	}, {
		ID: "D01", Name: "waves", Promise: "a topic that fills and empties many times loses nothing and repeats nothing",
		Saboteurs: []string{"loses-some", "ignores-acks"}, Test: waves,
	}, {
		ID: "P12", Name: "publisher-order", Promise: "messages of one publisher are received in the order of publishing",
		Saboteurs: []string{"reverses-reads"}, Test: publisherOrder,
	}, {
		ID: "C01", Name: "batch-of-topics", Promise: "of a batch over several topics, each topic gets its own, in order",
		Saboteurs: []string{"first-topic-wins"}, Test: batchOfTopics,
	}, {
		ID: "P16", Name: "names", Promise: "topics and groups whose names differ in anything are apart",
		Saboteurs: []string{"folds-topics", "folds-groups", "joins-names"}, Test: names,
	}, {
		ID: "P11", Name: "too-large", Promise: "a message whose Size is over the limit is refused as too large, one at the limit is not",
		Needs:     []law.Need{law.NeedPayloadLimit},
		Saboteurs: []string{"blurs-errors", "cuts-large", "sizes-without-headers", "sizes-with-framing"}, Test: tooLarge,
	}, {
		ID: "P13", Name: "batch-partial", Promise: "one message that is refused does not keep the others of its batch from being stored, and the errors say which",
		Needs:     []law.Need{law.NeedPayloadLimit},
		Saboteurs: []string{"blurs-batches", "hides-failures", "wakes-on-success-only", "errors-by-topic"}, Test: batchPartial,
	}, {
		ID: "P14", Name: "publish-done-context", Promise: "a Publish whose context is done stores nothing and says so",
		Saboteurs: []string{"ignores-publish-context"}, Test: publishDoneContext,
	}, {
		ID: "P10", Name: "full-store", Promise: "a full store refuses with ErrFull, keeps what it has, and takes more when there is room",
		Needs:     []law.Need{law.NeedBound},
		Saboteurs: []string{"hides-failures", "drops-oldest", "blurs-batches", "hides-removed"}, Test: fullStore,
	},
}

func publishDeliver(e *law.Env) {
	const publishers, each = 4, 50
	groups := []string{"a", "b", "c"}
	var sources []backend.Source
	for _, g := range groups {
		sources = append(sources, e.Attach(g))
	}
	e.Must(publishing(e, publishers, each)())
	for i, src := range sources {
		ds := e.Receive(src, publishers*each)
		e.Ack(src, ds...)
		got := law.IDs(ds)
		slices.Sort(got)
		if n := len(slices.Compact(got)); n != publishers*each {
			e.Failf("group %s got %d different messages, want %d", groups[i], n, publishers*each)
		}
		e.Nothing(src, e.Lease/2, "group "+groups[i]+" got all that was published")
	}
}

// publishing lets several publishers send one message after another, at the same time. The
// function wait returns when they have ended, with their errors.
func publishing(e *law.Env, publishers, each int) (wait func() error) {
	errs := make([]error, publishers)
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for _, m := range law.Numbered(string(rune('a'+p)), each) {
				errs[p] = errors.Join(errs[p], e.Send(m))
			}
		})
	}
	return func() error {
		wg.Wait()
		return errors.Join(errs...)
	}
}

func receiveWhilePublished(e *law.Env) {
	const publishers, each = 4, 50
	src := e.Attach("g")
	wait := publishing(e, publishers, each)
	defer wait() //nolint:errcheck // the call below checks
	got, last := map[string]bool{}, ""
	for ctx := e.Bounded(); len(got) < publishers*each && ctx.Err() == nil; {
		ds := e.Take(ctx, src, 10)
		for _, d := range ds {
			if d.Position <= last && !d.Redelivered {
				e.Failf("got position %s after %s: a message became visible after a message with a greater position", d.Position, last)
			}
			last = max(last, d.Position)
			got[d.ID] = true
		}
		e.Ack(src, ds...)
	}
	e.Must(wait())
	if len(got) < publishers*each {
		e.Failf("got %d of %d messages: the cursor of the group has passed messages that were stored later", len(got), publishers*each)
	}
}

func waves(e *law.Env) {
	src := e.Attach("g")
	for wave := range 30 {
		want := law.IDsOf(e.Publish(law.Numbered(fmt.Sprintf("%d-", wave), 20+wave)...))
		ds := e.Receive(src, len(want))
		if got := law.IDs(ds); !slices.Equal(got, want) {
			e.Failf("wave %d: got %v, want %v", wave, got, want)
		}
		e.Ack(src, ds...)
	}
	e.Nothing(src, e.Lease+e.Soon(), "all is acknowledged")
}

func publisherOrder(e *law.Env) {
	src := e.Attach("g")
	var want []string
	for _, n := range []int{1, 2, 7, 40, 1, 150} {
		batch := law.Numbered(string(rune('a'+len(want)%26)), n)
		e.Publish(batch...)
		want = append(want, law.IDsOf(batch)...)
	}
	if got := law.IDs(e.Receive(src, len(want))); !slices.Equal(got, want) {
		e.Failf("got  %v\nwant %v", got, want)
	}
}

func batchOfTopics(e *law.Env) {
	batch := []*backend.Message{
		{Topic: "a", ID: "1"}, {Topic: "b", ID: "2"}, {Topic: "a", ID: "3"}, {Topic: "c", ID: "4"}, {Topic: "b", ID: "5"},
	}
	e.Publish(batch...)
	for name, want := range map[string][]string{"a": {"1", "3"}, "b": {"2", "5"}, "c": {"4"}} {
		src := e.AttachAs(backend.Config{Topic: name, Group: "g"})
		ds := e.Receive(src, len(want))
		for i, d := range ds {
			if j := slices.IndexFunc(batch, func(m *backend.Message) bool { return m.ID == want[i] }); d.ID != want[i] ||
				d.Topic != name || d.Position != batch[j].Position {
				e.Failf("topic %s, delivery %d: got topic %s, id %s, position %s, want %s and %s", name, i, d.Topic, d.ID, d.Position, want[i], batch[j].Position)
			}
		}
		e.Nothing(src, e.Lease/4, "topic "+name+" has no more")
	}
}

func names(e *law.Env) {
	long := strings.Repeat("x", backend.MaxName-1)
	all := []string{"a.b", "a-b", "a_b", "a.B", "ab", "A.b", "a.b.c", "0", "-", "_", long + "y", long + "z"}
	var sources []backend.Source
	for _, name := range all {
		sources = append(sources, e.Attach(name))
	}
	e.Publish(&backend.Message{ID: "to all groups"})
	for i, src := range sources {
		if ds := e.ReceiveWithin(src, 1, e.Soon()); len(ds) != 1 {
			e.Failf("group %s got %d messages, want 1", all[i], len(ds))
		}
		e.Must(src.Close())
	}
	for _, name := range all {
		e.Publish(&backend.Message{Topic: name, ID: name})
	}
	for _, name := range all {
		src := e.AttachAs(backend.Config{Topic: name, Group: "g"})
		d := e.One(src)
		if d.ID != name || d.Topic != name {
			e.Failf("topic %s: got message %s of topic %s", name, d.ID, d.Topic)
		}
		e.Ack(src, d)
		e.Nothing(src, e.Lease/10, "topic "+name+" has one message")
		e.Must(src.Close())
	}
	for _, joint := range []string{".", "-", "_"} {
		pair(e, backend.Config{Topic: "t", Group: "u" + joint + "g"}, backend.Config{Topic: "t" + joint + "u", Group: "g"})
	}
}

// pair attaches a member with each of two configs. Their topics and groups differ, but are
// the same if a driver joins the two names.
func pair(e *law.Env, configs ...backend.Config) {
	e.Helper()
	var sources []backend.Source
	for _, c := range configs {
		c.Start = backend.StartLatest
		sources = append(sources, e.AttachAs(c))
	}
	for i, c := range configs {
		id := fmt.Sprintf("of group %s of topic %s", c.Group, c.Topic)
		e.Publish(&backend.Message{Topic: c.Topic, ID: id})
		d := e.One(sources[i])
		if d.ID != id || d.Topic != c.Topic {
			e.Failf("got message %q of topic %s, want %q", d.ID, d.Topic, id)
		}
		e.Ack(sources[i], d)
		e.Must(sources[i].Close())
	}
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
