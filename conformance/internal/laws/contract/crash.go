package contract

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// crashLaws are about a broker that ends and is started again.
var crashLaws = []law.Law{
	{
		ID: "P02", Name: "ack-means-stored", Promise: "what Publish reported as stored survives a broker crash, and what it reported as not stored is not stored",
		Needs:  []law.Need{law.NeedKill},
		Faults: []string{"publish-hides-failures"}, Test: ackMeansStored,
	}, {
		ID: "P08", Name: "once-after-crash", Promise: "Once remembers IDs across a broker crash",
		Needs:  []law.Need{law.NeedKill, law.NeedOnce},
		Faults: []string{"once-ignored"}, Test: onceAfterCrash,
	}, {
		ID: "D09", Name: "attempt-after-crash", Promise: "after a broker crash, an attempt number is never higher than the number of receipts",
		Needs:  []law.Need{law.NeedKill},
		Faults: []string{"receive-miscounts"}, Test: attemptAfterCrash,
	}, {
		ID: "D11", Name: "ack-then-crash", Promise: "after a broker crash, messages that were acknowledged before it are not redelivered, and the others are",
		Needs:  []law.Need{law.NeedKill},
		Faults: []string{"ack-ignored"}, Test: ackThenCrash,
	}, {
		ID: "T05", Name: "delay-over-restart", Promise: "a delayed message is redelivered when it is due even if the broker ended in between, not before and soon after",
		Needs:  []law.Need{law.NeedRestart, law.NeedKill, law.NeedDelayer},
		Faults: []string{"delay-ignored"}, Test: delayOverRestart,
	}, {
		ID: "D07", Name: "position-outlives-process", Promise: "a group continues where it left off after every process that used it has ended",
		Needs:  []law.Need{law.NeedPeer},
		Faults: []string{"start-every-time"}, Test: positionOutlivesProcess,
	}, {
		ID: "D18", Name: "lease-over-crash", Promise: "a lease and its extension survive a broker crash, and the holder from before the crash loses the message when another member takes it over",
		Needs:  []law.Need{law.NeedKill},
		Faults: []string{"extend-ignored", "unfenced"}, Test: leaseOverCrash,
	},
}

// published holds the IDs of the messages that were published during harm, by outcome.
type published struct {
	stored, refused, unknown []string
}

// publishThrough publishes messages one by one until harm has returned. It does not repeat
// a failed Publish.
func publishThrough(e *law.Env, harm func()) published {
	e.Helper()
	e.Trouble()
	stop := make(chan struct{})
	var p published
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			m := &backend.Message{Topic: law.Topic, ID: fmt.Sprintf("%05d", i)}
			ctx, cancel := context.WithTimeout(e.Context(), e.Lease)
			err := backend.ErrorAt(e.Backend.Publish(ctx, []*backend.Message{m}), 0)
			cancel()
			switch {
			case err == nil:
				p.stored = append(p.stored, m.ID)
			case backend.NotStored(err):
				p.refused = append(p.refused, m.ID)
			default:
				p.unknown = append(p.unknown, m.ID)
			}
		}
	})
	harm()
	close(stop)
	wg.Wait()
	return p
}

// arrived receives and acknowledges the messages of p. It expects each stored message
// exactly one time, in order. It accepts messages of unknown outcome, but no refused
// message.
func arrived(e *law.Env, src backend.Source, p published) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience())
	defer cancel()
	seen := map[string]bool{}
	var got []string
	for left := len(p.stored); left > 0 && ctx.Err() == nil; {
		ds := e.Take(ctx, src, 100)
		e.Ack(src, ds...)
		for _, d := range ds {
			if seen[d.ID] || slices.Contains(p.refused, d.ID) {
				e.Failf("got message %s; seen before: %v; Publish said that it is not stored: %v", d.ID, seen[d.ID], !seen[d.ID])
			}
			seen[d.ID] = true
			if !slices.Contains(p.unknown, d.ID) {
				got = append(got, d.ID)
				left--
			}
		}
	}
	if !slices.Equal(got, p.stored) {
		e.Failf("got %d messages, want the %d that are stored, in their order\ngot  %v\nwant %v", len(got), len(p.stored), got, p.stored)
	}
}

func ackMeansStored(e *law.Env) {
	p := publishThrough(e, func() {
		for range 2 {
			time.Sleep(500 * time.Millisecond)
			e.Kill()
		}
		time.Sleep(500 * time.Millisecond)
	})
	if len(p.stored) == 0 {
		e.Failf("nothing was stored, %d refused, %d unknown", len(p.refused), len(p.unknown))
	}
	src := e.Attach("g")
	arrived(e, src, p)
	for _, d := range e.ReceiveWithin(src, len(p.unknown), e.Soon()) { // messages of unknown outcome may arrive after all stored messages
		if !slices.Contains(p.unknown, d.ID) {
			e.Failf("got message %s once more, or though Publish said that it is not stored", d.ID)
		}
	}
}

func onceAfterCrash(e *law.Env) {
	src := e.Attach("g")
	first, again := onceMessage("a"), onceMessage("a")
	e.Publish(first)
	e.Kill()
	e.Publish(again)
	duplicate(e, again, first)
	e.Ack(src, e.One(src))
	e.Nothing(src, e.Lease/2, "the second is a duplicate")
}

func attemptAfterCrash(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(3)
	for receipts := 1; receipts <= 3; receipts++ {
		for _, d := range e.Receive(src, 3) {
			if d.Attempt > receipts {
				e.Failf("message %s: got attempt %d, want at most %d", d.ID, d.Attempt, receipts)
			}
		}
		e.Kill()
	}
}

func ackThenCrash(e *law.Env) {
	src := e.Attach("g")
	want := law.IDsOf(e.PublishN(20))[10:]
	e.Ack(src, e.Receive(src, 20)[:10]...)
	e.Kill()
	again := e.Receive(src, 10)
	if got := law.IDs(again); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		e.Failf("got %v back, want what was not acknowledged: %v", got, want)
	}
	e.Ack(src, again...)
	e.Kill()
	e.Nothing(src, e.Lease+e.Soon(), "all are acknowledged")
}

func delayOverRestart(e *law.Env) {
	src := e.Attach("g")
	for i, crash := range []func(){e.Restart, e.Kill} {
		e.Publish(law.Numbered(fmt.Sprint(i), 1)...)
		d := e.One(src)
		start := time.Now()
		e.Verb(e.Delay(src, 2*e.Lease, d))
		crash()
		d = e.One(src)
		e.NotBefore(start, 2*e.Lease, "it came back")
		e.By(start, 2*e.Lease, "it came back")
		e.Ack(src, d)
	}
}

func positionOutlivesProcess(e *law.Env) {
	want := law.IDsOf(e.PublishN(6))
	for _, start := range []backend.Start{backend.StartEarliest, backend.StartLatest, backend.StartEarliest} {
		p, src := e.AttachPeer(backend.Config{Group: "g", Start: start})
		ds := e.Receive(src, 2)
		if got := law.IDs(ds); !slices.Equal(got, want[:2]) {
			e.Failf("got %v, want %v", got, want[:2])
		}
		e.Ack(src, ds...)
		e.Must(p.Close())
		want = want[2:]
	}
	e.Nothing(e.Attach("g"), e.Lease/2, "all are acknowledged")
}

func leaseOverCrash(e *law.Env) {
	one, two := e.Attach("g"), e.AttachAs(backend.Config{Group: "g", Lease: 3 * e.Lease})
	e.PublishN(1)
	start := time.Now()
	d := e.One(one)
	if _, ok := backend.As[backend.Extender](one); ok {
		time.Sleep(e.Lease * 2 / 3)
		start = time.Now()
		e.Verb(e.Extend(one, d))
	}
	e.Kill()
	held := e.One(two)
	e.NotBefore(start, e.Lease, "another member took over")
	unheld(e, one, "what another has taken after a crash", d, backend.ErrLeaseLost)
	e.Ack(two, held)
}
