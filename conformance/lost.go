package conformance

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// What becomes of messages when an answer of the broker, or a body, is lost.
var lostLaws = []law{
	{
		id: "P04", name: "lost-publish-reply", promise: "a Publish whose answer is lost says that its outcome is unknown and was not repeated: one copy at most",
		needs:     []need{needDropReply},
		saboteurs: []string{"publishes-unknown-again"}, driver: lostPublishReply,
	}, {
		id: "P03", name: "lost-reply-with-id", promise: "a Once publish that is repeated after its answer was lost is stored once",
		needs:     []need{needDropReply, needOnce},
		saboteurs: []string{"forgets-once"}, driver: lostReplyWithID,
	}, {
		id: "L06", name: "lost-read-reply", promise: "messages of a read whose answer is lost come when their lease has passed, each once",
		needs:     []need{needDropReply},
		saboteurs: []string{"long-leases"}, driver: lostReadReply,
	}, {
		id: "C52", name: "lost-ack-reply", promise: "an Ack whose answer is lost is an error, and may be repeated: a fenced one is then told of a lost lease",
		needs:     []need{needDropReply},
		saboteurs: []string{"acks-later", "ignores-acks"}, driver: lostAckReply,
	}, {
		id: "D13", name: "deleted-while-pending", promise: "a held or delayed message that the broker has lost comes back as a delivery with ErrGone, and the group goes on",
		needs:     []need{needLose, needDelayer},
		saboteurs: []string{"skips-gone"}, driver: deletedWhilePending,
	},
}

func lostPublishReply(e *driverEnv) {
	for _, n := range []int{1, 10} {
		for _, once := range []bool{false, true} {
			if !once || e.limits.OnceWindow > 0 {
				e.loseReply(fmt.Sprintf("%d-%v", n, once), n, once)
			}
		}
	}
}

// loseReply publishes n messages to a topic of their own, without an answer.
func (e *driverEnv) loseReply(name string, n int, once bool) {
	e.Helper()
	src := e.attachAs(backend.Config{Topic: name, Group: "g"})
	ms := numbered("", n)
	for _, m := range ms {
		m.Topic, m.Once = name, once
	}
	e.dropReply(RequestPublish)
	err := e.b.Publish(e.bounded(), ms)
	e.is(fmt.Sprintf("Publish of %d messages, Once %v, whose answer is lost", n, once), err, backend.ErrUnknownOutcome)
	ds := e.receiveWithin(src, n+1, e.soon())
	got := ids(ds)
	slices.Sort(got)
	if len(slices.Compact(slices.Clone(got))) != len(got) {
		e.failf("got %v, want each once at most", got)
	}
	for i, m := range ms {
		switch at := backend.ErrorAt(err, i); {
		case at == nil && !slices.Contains(got, m.ID):
			e.failf("got %v, without %s, of which Publish said that it is stored", got, m.ID)
		case at != nil && backend.NotStored(at) && slices.Contains(got, m.ID):
			e.failf("got %s, of which Publish said that it is not stored: %v", m.ID, at)
		}
	}
	e.ack(src, ds...)
}

func lostReplyWithID(e *driverEnv) {
	src := e.attach("g")
	for _, n := range []int{1, 10} {
		prefix := fmt.Sprintf("of-%d-", n)
		first := numbered(prefix, n)
		for _, m := range first {
			m.Once = true
		}
		e.dropReply(RequestPublish)
		if err := e.send(first...); err == nil {
			e.failf("Publish whose answer is lost: got no error")
		}
		e.publish(numbered(prefix, n)...) // with Once, as something was harmed
		ds := e.receive(src, n)
		if got, want := ids(ds), idsOf(first); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			e.failf("got %v, want each once: %v", got, want)
		}
		e.ack(src, ds...)
		e.nothing(src, e.lease/2, "the others are duplicates")
	}
}

func lostReadReply(e *driverEnv) {
	src := e.attach("g")
	const n, lost = 20, 3
	e.publishN(n)
	var start time.Time // of the last lease that nobody has heard of
	seen := map[string]bool{}
	for i := 0; len(seen) < n; i++ {
		if i < lost {
			e.dropReply(RequestReceive)
			start = time.Now()
		}
		ds := e.take(e.within(e.lease), src, 4)
		for _, d := range ds {
			if seen[d.ID] || d.Attempt > 1+lost {
				e.failf("message %s: got attempt %d, received before: %v", d.ID, d.Attempt, seen[d.ID])
			}
			seen[d.ID] = true
		}
		e.ack(src, ds...)
		if len(seen) < n {
			e.by(start, e.lease+time.Second, fmt.Sprintf("%d of %d messages were received", len(seen), n))
		}
	}
	e.nothing(src, e.lease+e.soon(), "all were received")
}

func lostAckReply(e *driverEnv) {
	src := e.attach("g")
	want := idsOf(e.publishN(6))[3:]
	ds := e.receive(src, 6)
	e.dropReply(RequestAck)
	err := src.Ack(e.bounded(), backend.Lend(ds[:3]))
	if !passing(err) {
		e.failf("Ack whose answer is lost: got error %v, want one that matches %q or %q", err, backend.ErrUnknownOutcome, backend.ErrUnavailable)
	}
	e.persist("a second Ack", func() error {
		err := src.Ack(e.Context(), backend.Lend(ds[:3]))
		if e.limits.FencedAcks && onlyLost(err) {
			return nil
		}
		return err
	})
	again := e.receive(src, 3)
	if got := ids(again); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		e.failf("got %v, want what was not acknowledged: %v", got, want)
	}
	e.ack(src, again...)
	e.nothing(src, e.lease+e.soon(), "all are acknowledged")
}

func deletedWhilePending(e *driverEnv) {
	src := e.attach("g")
	ms := e.publishN(3)
	ds := e.receive(src, 3)
	e.verb(e.delay(src, e.lease/2, ds[2]))
	for _, i := range []int{0, 2} {
		e.suite.Faults.Lose(e.T, e.own(e.b), topic, ms[i].Position)
	}
	e.publish(&backend.Message{ID: "next"})
	gone, ctx := map[string]bool{}, e.bounded()
	var whole []string
	for len(gone)+len(whole) < 4 && ctx.Err() == nil {
		ds, err := src.Receive(ctx, 10)
		if err != nil && ctx.Err() == nil {
			e.failf("Receive: got error %v, want none", err)
		}
		for _, d := range ds {
			switch {
			case d.Err == nil:
				whole = append(whole, d.ID)
			case errors.Is(d.Err, backend.ErrGone):
				gone[d.Position] = true
			default:
				e.failf("message %s: got error %v, want one that matches %q", d.Position, d.Err, backend.ErrGone)
			}
		}
		e.ack(src, ds...)
	}
	slices.Sort(whole)
	if want := []string{"0001", "next"}; !slices.Equal(whole, want) || !gone[ms[0].Position] || !gone[ms[2].Position] {
		e.failf("got messages %v and positions %v without one, want %v and the other two", whole, gone, want)
	}
	e.nothing(src, e.lease+e.soon(), "all are acknowledged")
}
