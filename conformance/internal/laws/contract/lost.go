package contract

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// lostLaws are about answers of the broker, and bodies of messages, that get lost.
var lostLaws = []law.Law{
	{
		ID: "P04", Name: "lost-publish-reply", Promise: "a Publish whose answer is lost reports an unknown outcome and is not repeated: at most one copy is stored",
		Needs:  []law.Need{law.NeedDropReply},
		Faults: []string{"publish-hides-failures"}, Test: lostPublishReply,
	}, {
		ID: "P03", Name: "lost-reply-with-id", Promise: "a Once publish that is repeated after its answer was lost is stored once",
		Needs:  []law.Need{law.NeedDropReply, law.NeedOnce},
		Faults: []string{"once-ignored"}, Test: lostReplyWithID,
	}, {
		ID: "L06", Name: "lost-read-reply", Promise: "if the answer to a read is lost, its messages are delivered when their leases have expired, each once",
		Needs:  []law.Need{law.NeedDropReply},
		Faults: []string{"ack-ignored"}, Test: lostReadReply,
	}, {
		ID: "C52", Name: "lost-ack-reply", Promise: "an Ack whose answer is lost is an error and may be repeated; if acknowledgements are fenced, the repeated Ack may report a lost lease",
		Needs:  []law.Need{law.NeedDropReply},
		Faults: []string{"ack-ignored"}, Test: lostAckReply,
	}, {
		ID: "D13", Name: "deleted-while-pending", Promise: "a held or delayed message that the broker has lost is redelivered with ErrGone, and the group continues",
		Needs:  []law.Need{law.NeedLose, law.NeedDelayer},
		Faults: []string{"receive-skips-gone"}, Test: deletedWhilePending,
	},
}

func lostPublishReply(e *law.Env) {
	for _, n := range []int{1, 10} {
		for _, once := range []bool{false, true} {
			if !once || e.Limits.OnceWindow > 0 {
				loseReply(e, fmt.Sprintf("%d-%v", n, once), n, once)
			}
		}
	}
}

// loseReply publishes n messages to a topic, and the answer to Publish gets lost. It checks
// the error of Publish against the messages that are delivered.
func loseReply(e *law.Env, name string, n int, once bool) {
	e.Helper()
	src := e.AttachAs(backend.Config{Topic: name, Group: "g"})
	ms := law.Numbered("", n)
	for _, m := range ms {
		m.Topic, m.Once = name, once
	}
	e.DropReply(law.RequestPublish)
	err := e.Backend.Publish(e.Bounded(), ms)
	e.Is(fmt.Sprintf("Publish of %d messages, Once %v, whose answer is lost", n, once), err, backend.ErrUnknownOutcome)
	ds := e.ReceiveWithin(src, n+1, e.Soon())
	got := law.IDs(ds)
	slices.Sort(got)
	if len(slices.Compact(slices.Clone(got))) != len(got) {
		e.Failf("got %v, want each once at most", got)
	}
	for i, m := range ms {
		switch at := backend.ErrorAt(err, i); {
		case at == nil && !slices.Contains(got, m.ID):
			e.Failf("got %v, without %s, of which Publish said that it is stored", got, m.ID)
		case at != nil && backend.NotStored(at) && slices.Contains(got, m.ID):
			e.Failf("got %s, of which Publish said that it is not stored: %v", m.ID, at)
		}
	}
	e.Ack(src, ds...)
}

func lostReplyWithID(e *law.Env) {
	src := e.Attach("g")
	for _, n := range []int{1, 10} {
		prefix := fmt.Sprintf("of-%d-", n)
		first := law.Numbered(prefix, n)
		for _, m := range first {
			m.Once = true
		}
		e.DropReply(law.RequestPublish)
		if err := e.Send(first...); err == nil {
			e.Failf("Publish whose answer is lost: got no error")
		}
		e.Publish(law.Numbered(prefix, n)...) // Publish sets Once in each message, because DropReply has set Troubled
		ds := e.Receive(src, n)
		if got, want := law.IDs(ds), law.IDsOf(first); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			e.Failf("got %v, want each once: %v", got, want)
		}
		e.Ack(src, ds...)
		e.Nothing(src, e.Lease/2, "the others are duplicates")
	}
}

func lostReadReply(e *law.Env) {
	src := e.Attach("g")
	const n, lost = 20, 3
	e.PublishN(n)
	var start time.Time // when the last Receive whose answer was dropped began
	seen := map[string]bool{}
	for i := 0; len(seen) < n; i++ {
		if i < lost {
			e.DropReply(law.RequestReceive)
			start = time.Now()
		}
		ds := e.Take(e.Within(e.Lease), src, 4)
		for _, d := range ds {
			if seen[d.ID] || d.Attempt > 1+lost {
				e.Failf("message %s: got attempt %d, received before: %v", d.ID, d.Attempt, seen[d.ID])
			}
			seen[d.ID] = true
		}
		e.Ack(src, ds...)
		if len(seen) < n {
			e.By(start, e.Lease+time.Second, fmt.Sprintf("%d of %d messages were received", len(seen), n))
		}
	}
	e.Nothing(src, e.Lease+e.Soon(), "all were received")
}

func lostAckReply(e *law.Env) {
	src := e.Attach("g")
	want := law.IDsOf(e.PublishN(6))[3:]
	ds := e.Receive(src, 6)
	e.DropReply(law.RequestAck)
	err := src.Ack(e.Bounded(), backend.Lend(ds[:3]))
	if !law.Passing(err) {
		e.Failf("Ack whose answer is lost: got error %v, want one that matches %q or %q", err, backend.ErrUnknownOutcome, backend.ErrUnavailable)
	}
	e.Persist("a second Ack", func() error {
		err := src.Ack(e.Context(), backend.Lend(ds[:3]))
		if e.Limits.FencedAcks && law.OnlyLost(err) {
			return nil
		}
		return err
	})
	again := e.Receive(src, 3)
	if got := law.IDs(again); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		e.Failf("got %v, want what was not acknowledged: %v", got, want)
	}
	e.Ack(src, again...)
	e.Nothing(src, e.Lease+e.Soon(), "all are acknowledged")
}

func deletedWhilePending(e *law.Env) {
	src := e.Attach("g")
	ms := e.PublishN(3)
	ds := e.Receive(src, 3)
	e.Verb(e.Delay(src, e.Lease/2, ds[2]))
	for _, i := range []int{0, 2} {
		e.Lose(law.Topic, ms[i].Position)
	}
	e.Publish(&backend.Message{ID: "next"})
	gone, ctx := map[string]bool{}, e.Bounded()
	var whole []string
	for len(gone)+len(whole) < 4 && ctx.Err() == nil {
		ds, err := src.Receive(ctx, 10, 0)
		if err != nil && ctx.Err() == nil {
			e.Failf("Receive: got error %v, want none", err)
		}
		for _, d := range ds {
			switch {
			case d.Err == nil:
				whole = append(whole, d.ID)
			case errors.Is(d.Err, backend.ErrGone):
				gone[d.Position] = true
			default:
				e.Failf("message %s: got error %v, want one that matches %q", d.Position, d.Err, backend.ErrGone)
			}
		}
		e.Ack(src, ds...)
	}
	slices.Sort(whole)
	if want := []string{"0001", "next"}; !slices.Equal(whole, want) || !gone[ms[0].Position] || !gone[ms[2].Position] {
		e.Failf("got messages %v and positions %v without one, want %v and the other two", whole, gone, want)
	}
	e.Nothing(src, e.Lease+e.Soon(), "all are acknowledged")
}
