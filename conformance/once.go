package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var onceLaws = []law{
	{
		id: "P05", name: "once", promise: "a second Once publish of an ID within the window is a duplicate of the first and is not stored",
		needs:     []need{needOnce},
		saboteurs: []string{"forgets-once", "duplicates-in-silence"}, driver: once,
	}, {
		id: "P07", name: "once-scope", promise: "Once is about one topic",
		needs:     []need{needOnce},
		saboteurs: []string{"once-over-topics"}, driver: onceScope,
	}, {
		id: "C04", name: "once-if-asked", promise: "without Once an ID may be stored twice",
		saboteurs: []string{"once-unasked"}, driver: onceIfAsked,
	}, {
		id: "C05", name: "once-race", promise: "of many Once publishes of an ID at the same time one is stored",
		needs:     []need{needOnce},
		saboteurs: []string{"once-in-two-steps"}, driver: onceRace,
	}, {
		id: "P06", name: "once-expiry", promise: "Once forgets an ID after the window",
		needs:     []need{needShortWindow},
		saboteurs: []string{"once-for-ever"}, driver: onceExpiry,
	}, {
		id: "P09", name: "failed-publish-no-mark", promise: "a Once publish that was refused leaves the ID free",
		needs:     []need{needOnce},
		saboteurs: []string{"marks-before-storing"}, driver: failedPublishNoMark,
	},
}

// onceMessage returns a message with that ID to be stored once.
func onceMessage(id string) *backend.Message {
	return &backend.Message{ID: id, Payload: []byte(id), Once: true}
}

// duplicate expects what Publish said of a Once message.
func (e *driverEnv) duplicate(m *backend.Message, of *backend.Message) {
	e.Helper()
	if m.Duplicate != (of != nil) {
		e.failf("message %q: got Duplicate %v, want %v", m.ID, m.Duplicate, of != nil)
	}
	if of != nil && m.Position != of.Position && m.Position != "" {
		e.failf("message %q: got position %q, want that of the first, %q", m.ID, m.Position, of.Position)
	}
}

func once(e *driverEnv) {
	src := e.attach("g")
	first, second := onceMessage("a"), onceMessage("a")
	second.Payload = []byte("another")
	e.publish(first)
	e.publish(second)
	e.duplicate(first, nil)
	e.duplicate(second, first)
	batch := e.publish(onceMessage("b"), onceMessage("a"), onceMessage("b"), onceMessage("c"))
	for i, of := range []*backend.Message{nil, first, batch[0], nil} {
		e.duplicate(batch[i], of)
	}
	ds := e.receive(src, 3)
	if got, want := ids(ds), []string{"a", "b", "c"}; !slices.Equal(got, want) || string(ds[0].Payload) != "a" {
		e.failf("got %v with payload %q, want %v with the first payload", got, ds[0].Payload, want)
	}
	e.ack(src, ds...)
	settled := onceMessage("a")
	e.publish(settled)
	e.duplicate(settled, first)
	e.nothing(src, e.lease/2, "the others are duplicates")
}

func onceScope(e *driverEnv) {
	for _, name := range []string{"a", "b"} {
		src := e.attachAs(backend.Config{Topic: name, Group: "g"})
		m := onceMessage("id")
		m.Topic = name
		e.publish(m)
		e.duplicate(m, nil)
		e.one(src)
	}
}

func onceIfAsked(e *driverEnv) {
	src := e.attach("g")
	first, second := &backend.Message{ID: "id"}, &backend.Message{ID: "id"}
	e.publish(first, &backend.Message{ID: "id"})
	e.publish(second)
	if second.Duplicate || second.Position == first.Position {
		e.failf("got Duplicate %v and position %q after %q, want a message of its own", second.Duplicate, second.Position, first.Position)
	}
	e.receive(src, 3)
}

func onceRace(e *driverEnv) {
	src := e.attach("g")
	ms := make([]*backend.Message, 8)
	errs := make([]error, len(ms))
	var wg sync.WaitGroup
	for i := range ms {
		ms[i] = onceMessage("id")
		wg.Go(func() { errs[i] = e.send(ms[i]) })
	}
	wg.Wait()
	e.must(errors.Join(errs...))
	stored := slices.DeleteFunc(ms, func(m *backend.Message) bool { return m.Duplicate })
	if len(stored) != 1 {
		e.failf("%d publishes say that they stored the message, want 1", len(stored))
	}
	e.ack(src, e.one(src))
	e.nothing(src, e.lease/2, "the others are duplicates")
}

func onceExpiry(e *driverEnv) {
	src := e.attach("g")
	all := []string{"a", "b", "c", "d", "e", "f"}
	for _, id := range all {
		e.publish(onceMessage(id))
	}
	e.ack(src, e.receive(src, len(all))...)
	time.Sleep(e.limits.OnceWindow + e.soon())
	slices.Reverse(all)
	for _, id := range all {
		again, third := onceMessage(id), onceMessage(id)
		e.publish(again)
		e.duplicate(again, nil)
		e.publish(third)
		e.duplicate(third, again)
	}
	if got := ids(e.receive(src, len(all))); !slices.Equal(got, all) {
		e.failf("got %v, want each once more: %v", got, all)
	}
	again := onceMessage(all[0])
	e.publish(again)
	if !again.Duplicate {
		e.failf("an ID that was stored again is forgotten with its first mark")
	}
}

func failedPublishNoMark(e *driverEnv) {
	src := e.attach("g")
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	m := onceMessage("cancelled")
	m.Topic = topic
	if err := e.b.Publish(ctx, []*backend.Message{m}); err == nil {
		e.failf("Publish with a context that is done: got no error")
	}
	retry := onceMessage("cancelled")
	e.publish(retry)
	e.duplicate(retry, nil)
	e.one(src)
	if needPayloadLimit.claimed(e) {
		e.noMarkOfTooLarge(src)
	}
	if needBound.claimed(e) {
		e.openBounded(4)
		e.noMarkOfFull(e.attach("g"))
	}
}

func (e *driverEnv) noMarkOfTooLarge(src backend.Source) {
	e.Helper()
	large := onceMessage("large")
	large.Payload = make([]byte, e.limits.Payload)
	e.is("Publish of more than the limit", e.send(large), backend.ErrTooLarge)
	retry := onceMessage("large")
	e.publish(retry)
	e.duplicate(retry, nil)
	e.one(src)
}

func (e *driverEnv) noMarkOfFull(src backend.Source) {
	e.Helper()
	var refused []string
	stored := 0
	for len(refused) == 0 && stored < 1000 {
		m := onceMessage(fmt.Sprint("filling-", stored))
		if err := e.send(m); err != nil {
			e.is("Publish", err, backend.ErrFull)
			refused = append(refused, m.ID)
		} else {
			stored++
		}
	}
	e.ack(src, e.receive(src, stored)...)
	e.maintain("g")
	for _, id := range refused {
		retry := onceMessage(id)
		e.publish(retry)
		e.duplicate(retry, nil)
	}
}
