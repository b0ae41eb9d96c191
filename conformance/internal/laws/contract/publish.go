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
		ID: "P11", Name: "too-large", Promise: "a message over the limit is refused as too large, one at the limit is not",
		Needs:     []law.Need{law.NeedPayloadLimit},
		Saboteurs: []string{"blurs-errors", "cuts-large"}, Test: tooLarge,
	}, {
		ID: "P13", Name: "batch-partial", Promise: "one message that is refused does not keep the others of its batch from being stored, and the errors say which",
		Needs:     []law.Need{law.NeedPayloadLimit},
		Saboteurs: []string{"blurs-batches", "hides-failures", "wakes-on-success-only"}, Test: batchPartial,
	}, {
		ID: "P14", Name: "publish-done-context", Promise: "a Publish whose context is done stores nothing and says so",
		Saboteurs: []string{"ignores-publish-context"}, Test: publishDoneContext,
	}, {
		ID: "P10", Name: "full-store", Promise: "a full store refuses with ErrFull, keeps what it has, and takes more when there is room",
		Needs:     []law.Need{law.NeedBound},
		Saboteurs: []string{"hides-failures", "drops-oldest"}, Test: fullStore,
	},
}

func publishDeliver(e *law.Env) {
	const publishers, each = 4, 50
	groups := []string{"a", "b", "c"}
	var sources []backend.Source
	for _, g := range groups {
		sources = append(sources, e.Attach(g))
	}
	errs := make([]error, publishers)
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for _, m := range law.Numbered(string(rune('a'+p)), each) {
				errs[p] = errors.Join(errs[p], e.Send(m))
			}
		})
	}
	wg.Wait()
	e.Must(errors.Join(errs...))
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

func tooLarge(e *law.Env) {
	src := e.Attach("g")
	limit := e.Limits.Payload
	e.Publish(&backend.Message{ID: "fits", Payload: make([]byte, limit-len("fits"))})
	d := e.One(src)
	if len(d.Payload) != limit-len("fits") {
		e.Failf("got a payload of %d bytes, want %d", len(d.Payload), limit-len("fits"))
	}
	e.Ack(src, d)
	err := e.Send(&backend.Message{ID: "large", Payload: make([]byte, limit)})
	e.Is("Publish of more than the limit", err, backend.ErrTooLarge)
	if !backend.NotStored(backend.ErrorAt(err, 0)) {
		e.Failf("got %v, want an error that says that nothing is stored", err)
	}
	e.Publish(&backend.Message{ID: "small"})
	if d := e.One(src); d.ID != "small" {
		e.Failf("got %q, want the next message", d.ID)
	}
}

func batchPartial(e *law.Env) {
	src := e.Attach("g")
	batch := law.Numbered("", 5)
	batch[1].Payload = make([]byte, e.Limits.Payload)
	batch[4].Payload = make([]byte, e.Limits.Payload)
	waiting := e.Background(e.Bounded(), src, 3)
	time.Sleep(e.Lease / 4)
	start := time.Now()
	err := e.Send(batch...)
	for i, m := range batch {
		var want error
		if i == 1 || i == 4 {
			want = backend.ErrTooLarge
		}
		if got := backend.ErrorAt(err, i); !errors.Is(got, want) || (want == nil && got != nil) {
			e.Failf("message %d: got error %v, want %v", i, got, want)
		}
		if want == nil && m.Position == "" {
			e.Failf("message %d: got no position", i)
		}
	}
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
	if d := e.One(src); d.ID != "later" {
		e.Failf("got %q, want what was published when there was room", d.ID)
	}
}
