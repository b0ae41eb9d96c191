package contract

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var readLaws = []law.Law{
	{
		ID: "C34", Name: "read", Promise: "Read returns what a topic keeps after a position, oldest first, without affecting any group",
		Needs:  []law.Need{law.NeedVerb[backend.Reader]()},
		Faults: []string{"read-from-included"}, Test: read,
	}, {
		ID: "C35", Name: "read-waits-not", Promise: "at the end of a topic, Read returns nothing, without waiting",
		Needs:  []law.Need{law.NeedVerb[backend.Reader]()},
		Faults: []string{"read-from-included"}, Test: readWaitsNot,
	}, {
		ID: "C87", Name: "read-while-publishing", Promise: "reading page by page while others publish returns each message once and in order",
		Needs:  []law.Need{law.NeedVerb[backend.Reader]()},
		Faults: []string{"publish-loses", "read-from-included"}, Test: readWhilePublishing,
	}, {
		ID: "C88", Name: "read-many", Promise: "Read returns as many messages as asked for, if they exist, even across many that were removed",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()},
		Faults: []string{"remove-ignored", "publish-loses"}, Test: readMany,
	}, {
		ID: "C36", Name: "read-unknown-topic", Promise: "Read returns ErrGone if the topic does not exist",
		Needs:  []law.Need{law.NeedVerb[backend.Reader]()},
		Faults: []string{"errors-hidden"}, Test: readUnknownTopic,
	},
}

// reads calls Read, and expects that it returns the messages want.
func reads(e *law.Env, from string, max int, want []*backend.Message) {
	e.Helper()
	readsFrom(e, backend.StartAfter(from), max, want)
}

func readsFrom(e *law.Env, from backend.Start, max int, want []*backend.Message) {
	e.Helper()
	v := e.Verbs()
	got, err := v.Read(e.Context(), law.Topic, from, max)
	e.Verb(err)
	if len(got) != len(want) {
		e.Failf("Read from %q of at most %d: got %d messages, want %d", from, max, len(got), len(want))
	}
	for i := range got {
		same(e, &got[i], want[i])
		copy(got[i].Payload, "changed by its reader")
	}
}

func read(e *law.Env) {
	src := e.Attach("g")
	ms := law.Numbered("", 10)
	for _, m := range ms {
		m.Key, m.Headers = "key", backend.Headers{{Name: "name", Value: m.ID}}
	}
	e.Publish(ms...)
	reads(e, "", 100, ms)
	reads(e, "", 3, ms[:3])
	reads(e, ms[2].Position, 4, ms[3:7])
	reads(e, ms[6].Position, 4, ms[7:])
	reads(e, ms[9].Position, 4, nil)
	ds := e.Receive(src, 10)
	if got, want := law.IDs(ds), law.IDsOf(ms); !slices.Equal(got, want) {
		e.Failf("the group got %v, want %v", got, want)
	}
	for _, d := range ds {
		e.Attempt(d, 1)
	}
	reads(e, "", 100, ms)
	size := 1 << 20
	if limit := e.Limits.Payload; limit > 0 {
		size = min(size, limit-len("large"))
	}
	large := e.Publish(&backend.Message{ID: "large", Payload: make([]byte, size)})
	reads(e, ms[9].Position, 100, large)
}

func readWaitsNot(e *law.Env) {
	ms := e.PublishN(1)
	start := time.Now()
	reads(e, ms[0].Position, 10, nil)
	e.By(start, 0, "Read returned")
}

func readUnknownTopic(e *law.Env) {
	v := e.Verbs()
	_, err := v.Read(e.Context(), "unknown", "", 10)
	e.Is("Read", claimed(e, err), backend.ErrGone)
}

// readWhilePublishing tests law C87 as a program that follows a topic.
func readWhilePublishing(e *law.Env) {
	const publishers, each = 4, 60
	e.PublishN(1) // the topic exists
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := 0; i < each; i += 4 {
				var ms []*backend.Message
				for k := range 4 {
					ms = append(ms, &backend.Message{ID: fmt.Sprintf("%d-%03d", p, i+k)})
				}
				if err := e.Send(ms...); err != nil {
					e.Errorf("Publish: got error %v, want none", err)
				}
			}
		})
	}
	published := make(chan struct{})
	e.Go(func() { wg.Wait(); close(published) })
	v := e.Verbs()
	var got []string
	from, over := "", false
	for {
		select {
		case <-published:
			over = true
		default:
		}
		ms, err := v.Read(e.Context(), law.Topic, backend.StartAfter(from), 40)
		e.Verb(err)
		for i := range ms {
			if ms[i].Position <= from {
				e.Failf("got position %q after %q", ms[i].Position, from)
			}
			from = ms[i].Position
			got = append(got, ms[i].ID)
		}
		if len(ms) == 0 && over {
			break
		}
	}
	if len(got) != publishers*each+1 {
		e.Failf("read %d messages, want %d", len(got), publishers*each+1)
	}
	all, err := v.Read(e.Context(), law.Topic, "", 2*len(got))
	e.Verb(err)
	for i := range all {
		if all[i].ID != got[i] {
			e.Failf("message %d was read as %s, and is %s", i, got[i], all[i].ID)
		}
	}
}

// readMany tests law C88, with more messages than a driver reads or removes in one request.
func readMany(e *law.Env) {
	const n = 700
	ms := e.PublishN(n)
	var gone, left []*backend.Message
	for i, m := range ms {
		if i%3 == 0 || i > 250 && i < 480 {
			gone = append(gone, m)
		} else {
			left = append(left, m)
		}
	}
	removes(e, gone...)
	reads(e, "", n, left)
	reads(e, "", 20, left[:20])
	reads(e, left[19].Position, n, left[20:])
}

var removeLaws = []law.Law{
	{
		ID: "C65", Name: "remove", Promise: "Remove takes exactly the named messages out of a topic, and changes nothing the second time",
		Needs:  []law.Need{law.NeedVerb[backend.Remover](), law.NeedVerb[backend.Reader]()},
		Faults: []string{"remove-ignored", "settle-once", "read-from-included"}, Test: remove,
	}, {
		ID: "C66", Name: "remove-in-groups", Promise: "a removed message, whether unread, held or delayed, is delivered to no group except with ErrGone; a held one may still be settled",
		Needs:  []law.Need{law.NeedVerb[backend.Remover](), law.NeedDelayer},
		Faults: []string{"remove-ignored"}, Test: removeInGroups,
	}, {
		ID: "C67", Name: "remove-unknown-topic", Promise: "Remove returns ErrGone if the topic does not exist",
		Needs:  []law.Need{law.NeedVerb[backend.Remover]()},
		Faults: []string{"errors-hidden"}, Test: removeUnknownTopic,
	},
}

// removes calls Remove with the positions of ms, and fails the law if Remove fails.
func removes(e *law.Env, ms ...*backend.Message) {
	e.Helper()
	positions := make([]string, len(ms))
	for i, m := range ms {
		positions[i] = m.Position
	}
	v := e.Verbs()
	e.Verb(v.Remove(e.Context(), law.Topic, positions))
}

func remove(e *law.Env) {
	e.Attach("g") // so that the topic keeps its messages, and the group has Stats
	ms := e.PublishN(10)
	removes(e)
	reads(e, "", 100, ms)
	removes(e, ms[4], ms[0])
	left := slices.Concat(ms[1:4], ms[5:])
	reads(e, "", 100, left)
	removes(e, ms[0], ms[4], ms[5])
	left = slices.Concat(ms[1:4], ms[6:])
	reads(e, "", 100, left)
	reads(e, ms[0].Position, 2, ms[1:3]) // after a position without a message
	reads(e, ms[4].Position, 100, ms[6:])
	depth(e, "after removals")
	reads(e, "", 4, left[:4])
	reads(e, ms[3].Position, 100, ms[6:])
	reads(e, ms[3].Position, 1, ms[6:7]) // no end of the topic, although the next two are removed
	more := e.Publish(law.Numbered("more-", 2)...)
	reads(e, ms[9].Position, 100, more)
	removes(e, more...)
	removes(e, more...)
	reads(e, "", 100, left)
	depth(e, "after messages were removed twice")
}

func removeInGroups(e *law.Env) {
	src := e.Attach("g")
	ms := e.PublishN(8)
	ds := e.Receive(src, 4)
	e.Must(e.Delay(src, e.Lease/4, ds[1], ds[2]))
	removes(e, ms[0], ms[1], ms[4], ms[6]) // the first message is held, the second is delayed, and no member has received the others
	e.Ack(src, ds[0], ds[3])
	var got []string
	for until := time.Now().Add(e.Patience()); len(got) < 3 && time.Now().Before(until); {
		d, err := src.Receive(e.Bounded(), 8, 0)
		if err != nil {
			e.Failf("Receive: got error %v, want none", err)
		}
		for i := range d {
			switch {
			case d[i].Err == nil:
				got = append(got, d[i].ID)
			case !errors.Is(d[i].Err, backend.ErrGone):
				e.Failf("a removed message came with the error %v, want ErrGone", d[i].Err)
			}
			e.Ack(src, d[i])
		}
	}
	slices.Sort(got)
	if want := law.IDsOf([]*backend.Message{ms[2], ms[5], ms[7]}); !slices.Equal(got, want) {
		e.Failf("the group got %v, want %v", got, want)
	}
}

func removeUnknownTopic(e *law.Env) {
	v := e.Verbs()
	err := v.Remove(e.Context(), "unknown", nil)
	e.Is("Remove", claimed(e, err), backend.ErrGone)
}
