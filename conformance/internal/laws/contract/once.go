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

var onceLaws = []law.Law{
	{
		ID: "P05", Name: "once", Promise: "a second Once publish of an ID within the window is a duplicate of the first and is not stored, whichever process publishes it",
		Needs:  []law.Need{law.NeedOnce},
		Faults: []string{"once-ignored"}, Test: once,
	}, {
		ID: "P07", Name: "once-scope", Promise: "Once applies to one topic only",
		Needs:  []law.Need{law.NeedOnce},
		Faults: []string{"once-for-ever"}, Test: onceScope,
	}, {
		ID: "C04", Name: "once-if-asked", Promise: "without Once, an ID may be stored twice, and does not affect later Once publishes",
		Faults: []string{"once-by-id"}, Test: onceIfAsked,
	}, {
		ID: "C85", Name: "once-key", Promise: "Once remembers OnceKey instead of ID: messages with the same OnceKey are duplicates whatever their IDs, and messages with the same ID are not if their OnceKeys differ",
		Needs:  []law.Need{law.NeedOnce},
		Faults: []string{"once-by-id"}, Test: onceKey,
	}, {
		ID: "C05", Name: "once-race", Promise: "of many concurrent Once publishes of an ID, one is stored",
		Needs:  []law.Need{law.NeedOnce},
		Faults: []string{"once-in-two-steps"}, Test: onceRace,
	}, {
		ID: "P06", Name: "once-expiry", Promise: "Once forgets an ID one window after the message was stored, and not before",
		Needs:  []law.Need{law.NeedShortWindow},
		Faults: []string{"once-for-ever", "once-ignored"}, Test: onceExpiry,
	}, {
		ID: "P22", Name: "once-new-topic", Promise: "a topic that is deleted and recreated remembers no IDs from the old topic",
		Needs:  []law.Need{law.NeedOnce, law.NeedVerb[backend.Admin]()},
		Faults: []string{"once-for-ever"}, Test: onceNewTopic,
	}, {
		ID: "P23", Name: "once-outlives-message", Promise: "Once remembers the ID of a message that has been settled, trimmed or removed",
		Needs:  []law.Need{law.NeedOnce},
		Faults: []string{"once-ignored"}, Test: onceOutlivesMessage,
	}, {
		ID: "P09", Name: "failed-publish-no-mark", Promise: "a Once publish that was refused leaves the ID unused",
		Needs:  []law.Need{law.NeedOnce},
		Faults: []string{"once-in-two-steps", "once-for-ever"}, Test: failedPublishNoMark,
	},
}

// onceMessage returns a message with this ID whose field Once is true.
func onceMessage(id string) *backend.Message {
	return &backend.Message{ID: id, Payload: []byte(id), Once: true}
}

// duplicate expects that m is marked as a duplicate of the second message. If the second
// message is nil, m must not be marked as a duplicate.
func duplicate(e *law.Env, m *backend.Message, of *backend.Message) {
	e.Helper()
	if m.Duplicate != (of != nil) {
		e.Failf("message %q: got Duplicate %v, want %v", m.ID, m.Duplicate, of != nil)
	}
	if of != nil && m.Position != of.Position && m.Position != "" {
		e.Failf("message %q: got position %q, want that of the first, %q", m.ID, m.Position, of.Position)
	}
}

func once(e *law.Env) {
	src := e.Attach("g")
	first, second := onceMessage("a"), onceMessage("a")
	second.Payload = []byte("another")
	e.Publish(first)
	e.Publish(second)
	duplicate(e, first, nil)
	duplicate(e, second, first)
	batch := e.Publish(onceMessage("b"), onceMessage("a"), onceMessage("b"), onceMessage("c"))
	for i, of := range []*backend.Message{nil, first, batch[0], nil} {
		duplicate(e, batch[i], of)
	}
	ds := e.Receive(src, 3)
	if got, want := law.IDs(ds), []string{"a", "b", "c"}; !slices.Equal(got, want) || string(ds[0].Payload) != "a" {
		e.Failf("got %v with payload %q, want %v with the first payload", got, ds[0].Payload, want)
	}
	e.Ack(src, ds...)
	settled := onceMessage("a")
	e.Publish(settled)
	duplicate(e, settled, first)
	if e.Claims(law.NeedPeer) {
		p, again := e.Peer(), onceMessage("a")
		again.Topic = law.Topic
		e.Persist("Publish of another process", func() error { return p.Publish(e.Context(), []*backend.Message{again}) })
		duplicate(e, again, first)
	}
	e.Nothing(src, e.Lease/2, "the others are duplicates")
	settled.ID, settled.Payload = "reused", nil // Publish resets Duplicate
	e.Publish(settled)
	duplicate(e, settled, nil)
	e.One(src)
}

func onceScope(e *law.Env) {
	for _, name := range []string{"a", "b"} {
		src := e.AttachAs(backend.Config{Topic: name, Group: "g"})
		m := onceMessage("id")
		m.Topic = name
		e.Publish(m)
		duplicate(e, m, nil)
		e.One(src)
	}
}

func onceIfAsked(e *law.Env) {
	src := e.Attach("g")
	first, second := &backend.Message{ID: "id"}, &backend.Message{ID: "id"}
	e.Publish(first, &backend.Message{ID: "id"})
	e.Publish(second)
	if second.Duplicate || second.Position == first.Position {
		e.Failf("got Duplicate %v and position %q after %q, want a message of its own", second.Duplicate, second.Position, first.Position)
	}
	asked := onceMessage("id")
	e.Publish(asked)
	duplicate(e, asked, nil) // the topic has stored no other message with Once
	e.Receive(src, 4)
}

func onceKey(e *law.Env) {
	src := e.Attach("g")
	keyed := func(id, key string) *backend.Message { return &backend.Message{ID: id, Once: true, OnceKey: key} }
	long := strings.Repeat("k", 512)
	first := e.Publish(keyed("a", "k"), keyed("b", "\x00"), keyed("c", long))
	for i, m := range []*backend.Message{keyed("x", "k"), keyed("y", "\x00"), keyed("z", long)} {
		e.Publish(m)
		duplicate(e, m, first[i])
	}
	for _, m := range []*backend.Message{keyed("a", "other"), keyed("a", ""), keyed("d", long[1:])} {
		e.Publish(m)
		duplicate(e, m, nil)
	}
	ds := e.Receive(src, 6)
	if got, want := law.IDs(ds), []string{"a", "b", "c", "a", "a", "d"}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
	for i := range ds {
		if ds[i].OnceKey != "" || ds[i].Once {
			e.Failf("a delivery has Once %v and OnceKey %q, want neither", ds[i].Once, ds[i].OnceKey)
		}
	}
}

func onceRace(e *law.Env) {
	src := e.Attach("g")
	ms := make([]*backend.Message, 8)
	errs := make([]error, len(ms))
	var wg sync.WaitGroup
	for i := range ms {
		ms[i] = onceMessage("id")
		wg.Go(func() { errs[i] = e.Send(ms[i]) })
	}
	wg.Wait()
	e.Must(errors.Join(errs...))
	stored := slices.DeleteFunc(ms, func(m *backend.Message) bool { return m.Duplicate })
	if len(stored) != 1 {
		e.Failf("%d publishes say that they stored the message, want 1", len(stored))
	}
	e.Ack(src, e.One(src))
	e.Nothing(src, e.Lease/2, "the others are duplicates")
}

func onceExpiry(e *law.Env) {
	src := e.Attach("g")
	all := []string{"a", "b", "c", "d", "e", "f"}
	start := time.Now()
	for _, id := range all {
		e.Publish(onceMessage(id))
	}
	e.Ack(src, e.Receive(src, len(all))...)
	time.Sleep(e.Limits.OnceWindow / 2)
	for _, id := range all {
		e.Publish(onceMessage(id)) // a duplicate, which must not begin a new window
	}
	time.Sleep(e.Limits.OnceWindow/2 + e.Soon())
	slices.Reverse(all)
	for _, id := range all {
		again, third := onceMessage(id), onceMessage(id)
		e.Publish(again)
		if again.Duplicate {
			e.Failf("message %q is a duplicate %v after it was stored, want it stored again after the window of %v", id, time.Since(start), e.Limits.OnceWindow)
		}
		e.Publish(third)
		duplicate(e, third, again)
	}
	if got := law.IDs(e.Receive(src, len(all))); !slices.Equal(got, all) {
		e.Failf("got %v, want each once more: %v", got, all)
	}
	e.Maintain("g")
	again := onceMessage(all[0])
	e.Publish(again)
	if !again.Duplicate {
		e.Failf("an ID that was stored again is forgotten with its first mark")
	}
}

func onceNewTopic(e *law.Env) {
	e.Publish(onceMessage("a"))
	e.Verb(e.Verbs().DeleteTopic(e.Context(), law.Topic))
	again := onceMessage("a")
	e.Publish(again)
	duplicate(e, again, nil)
	e.One(e.Attach("g"))
}

func onceOutlivesMessage(e *law.Env) {
	src := e.Attach("g")
	again := func(what string, first *backend.Message) {
		e.Helper()
		m := onceMessage(first.ID)
		e.Publish(m)
		if !m.Duplicate {
			e.Failf("message %q was %s, and the topic has forgotten its ID within the window", m.ID, what)
		}
	}
	first := onceMessage("settled")
	e.Publish(first)
	e.Ack(src, e.One(src))
	e.Maintain("g")
	again("settled and maybe trimmed", first)
	if _, ok := backend.As[backend.Remover](e.Backend); ok {
		first = onceMessage("removed")
		e.Publish(first)
		removes(e, first)
		again("removed", first)
	}
}

func failedPublishNoMark(e *law.Env) {
	src := e.Attach("g")
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	m := onceMessage("cancelled")
	m.Topic = law.Topic
	if err := e.Backend.Publish(ctx, []*backend.Message{m}); err == nil {
		e.Failf("Publish with a context that is done: got no error")
	}
	retry := onceMessage("cancelled")
	e.Publish(retry)
	duplicate(e, retry, nil)
	e.One(src)
	if e.Claims(law.NeedPayloadLimit) {
		noMarkOfTooLarge(e, src)
	}
	if e.Claims(law.NeedBound) {
		e.OpenBounded(4)
		noMarkOfFull(e, e.Attach("g"))
	}
}

func noMarkOfTooLarge(e *law.Env, src backend.Source) {
	e.Helper()
	large := onceMessage("large")
	large.Payload = make([]byte, e.Limits.Payload)
	e.Is("Publish of more than the limit", e.Send(large), backend.ErrTooLarge)
	retry := onceMessage("large")
	e.Publish(retry)
	duplicate(e, retry, nil)
	e.One(src)
}

func noMarkOfFull(e *law.Env, src backend.Source) {
	e.Helper()
	var refused []string
	stored := 0
	for len(refused) == 0 && stored < 1000 {
		m := onceMessage(fmt.Sprint("filling-", stored))
		if err := e.Send(m); err != nil {
			e.Is("Publish", err, backend.ErrFull)
			refused = append(refused, m.ID)
		} else {
			stored++
		}
	}
	e.Ack(src, e.Receive(src, stored)...)
	e.Maintain("g")
	for _, id := range refused {
		retry := onceMessage(id)
		e.Publish(retry)
		duplicate(e, retry, nil)
	}
}
