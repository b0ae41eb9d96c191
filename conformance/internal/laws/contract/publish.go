package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var publishLaws = []law.Law{
	{
		ID: "P01", Name: "publish-deliver", Promise: "every message of every publisher reaches every group, once",
		Faults: []string{"publish-loses"}, Test: publishDeliver,
	}, {
		ID: "P21", Name: "receive-while-published", Promise: "a member that receives while others publish gets every message, in the order of positions",
		Faults: []string{"publish-loses"}, Test: receiveWhilePublished,
	}, {
		ID: "D01", Name: "waves", Promise: "a topic that fills and empties many times loses nothing and repeats nothing",
		Faults: []string{"publish-loses", "ack-ignored"}, Test: waves,
	}, {
		ID: "P12", Name: "publisher-order", Promise: "messages of one publisher are received in the order of publishing",
		Faults: []string{"receive-reverses"}, Test: publisherOrder,
	}, {
		ID: "C01", Name: "batch-of-topics", Promise: "of a batch over several topics, each topic gets its own, in order",
		Faults: []string{"publish-one-topic"}, Test: batchOfTopics,
	}, {
		ID: "P16", Name: "names", Promise: "topics and groups whose names differ in anything are apart",
		Faults: []string{"names-fold"}, Test: names,
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
