package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// What a broker keeps when it ends and is started again.
var crashLaws = []law{
	{
		id: "P02", name: "ack-means-stored", promise: "what Publish has said is stored survives a crash of the broker, and what it has said is not stored is not",
		needs:     []need{needKill},
		saboteurs: []string{"stores-later", "publishes-some-day"}, driver: ackMeansStored,
	}, {
		id: "P08", name: "once-after-crash", promise: "Once remembers over a crash of the broker",
		needs:     []need{needKill, needOnce},
		saboteurs: []string{"forgets-once"}, driver: onceAfterCrash,
	}, {
		id: "D09", name: "attempt-after-crash", promise: "after a crash of the broker an attempt is never higher than the number of receipts",
		needs:     []need{needKill},
		saboteurs: []string{"counts-twice"}, driver: attemptAfterCrash,
	}, {
		id: "D11", name: "ack-then-crash", promise: "what was acknowledged before a crash of the broker does not come back after it, and what was not does",
		needs:     []need{needKill},
		saboteurs: []string{"acks-later"}, driver: ackThenCrash,
	}, {
		id: "T05", name: "delay-over-restart", promise: "a delayed message comes when it is due though the broker ended in between: not before, and soon after",
		needs:     []need{needRestart, needKill, needDelayer},
		saboteurs: []string{"ignores-delays"}, driver: delayOverRestart,
	}, {
		id: "D07", name: "position-outlives-process", promise: "a group goes on where it was when every process that used it has ended",
		needs:     []need{needPeer},
		saboteurs: []string{"forgets-groups", "starts-every-time"}, driver: positionOutlivesProcess,
	},
}

// What became of messages that were published through harm.
type published struct {
	stored, refused, unknown []string
}

// publishThrough publishes one message after another, each once, while harm is
// done.
func (e *driverEnv) publishThrough(harm func()) published {
	e.Helper()
	e.trouble()
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
			m := &backend.Message{Topic: topic, ID: fmt.Sprintf("%05d", i)}
			ctx, cancel := context.WithTimeout(e.Context(), e.lease)
			err := backend.ErrorAt(e.b.Publish(ctx, []*backend.Message{m}), 0)
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

// arrived expects what was stored, each once and in order, perhaps what is not
// known, and nothing that was refused. It acknowledges all.
func (e *driverEnv) arrived(src backend.Source, p published) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.patience())
	defer cancel()
	seen := map[string]bool{}
	var got []string
	for left := len(p.stored); left > 0 && ctx.Err() == nil; {
		ds := e.take(ctx, src, 100)
		e.ack(src, ds...)
		for _, d := range ds {
			if seen[d.ID] || slices.Contains(p.refused, d.ID) {
				e.failf("got message %s; seen before: %v; Publish said that it is not stored: %v", d.ID, seen[d.ID], !seen[d.ID])
			}
			seen[d.ID] = true
			if !slices.Contains(p.unknown, d.ID) {
				got = append(got, d.ID)
				left--
			}
		}
	}
	if !slices.Equal(got, p.stored) {
		e.failf("got %d messages, want the %d that are stored, in their order\ngot  %v\nwant %v", len(got), len(p.stored), got, p.stored)
	}
}

func ackMeansStored(e *driverEnv) {
	p := e.publishThrough(func() {
		for range 2 {
			time.Sleep(500 * time.Millisecond)
			e.kill()
		}
		time.Sleep(500 * time.Millisecond)
	})
	if len(p.stored) == 0 {
		e.failf("nothing was stored, %d refused, %d unknown", len(p.refused), len(p.unknown))
	}
	src := e.attach("g")
	e.arrived(src, p)
	for _, d := range e.receiveWithin(src, len(p.unknown), e.soon()) { // may come last
		if !slices.Contains(p.unknown, d.ID) {
			e.failf("got message %s once more, or though Publish said that it is not stored", d.ID)
		}
	}
}

func onceAfterCrash(e *driverEnv) {
	src := e.attach("g")
	first, again := onceMessage("a"), onceMessage("a")
	e.publish(first)
	e.kill()
	e.publish(again)
	e.duplicate(again, first)
	e.ack(src, e.one(src))
	e.nothing(src, e.lease/2, "the second is a duplicate")
}

func attemptAfterCrash(e *driverEnv) {
	src := e.attach("g")
	e.publishN(3)
	for receipts := 1; receipts <= 3; receipts++ {
		for _, d := range e.receive(src, 3) {
			if d.Attempt > receipts {
				e.failf("message %s: got attempt %d, want at most %d", d.ID, d.Attempt, receipts)
			}
		}
		e.kill()
	}
}

func ackThenCrash(e *driverEnv) {
	src := e.attach("g")
	want := idsOf(e.publishN(20))[10:]
	e.ack(src, e.receive(src, 20)[:10]...)
	e.kill()
	again := e.receive(src, 10)
	if got := ids(again); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		e.failf("got %v back, want what was not acknowledged: %v", got, want)
	}
	e.ack(src, again...)
	e.kill()
	e.nothing(src, e.lease+e.soon(), "all are acknowledged")
}

func delayOverRestart(e *driverEnv) {
	src := e.attach("g")
	for i, crash := range []func(){e.restart, e.kill} {
		e.publish(numbered(fmt.Sprint(i), 1)...)
		d := e.one(src)
		start := time.Now()
		e.verb(e.delay(src, 2*e.lease, d))
		crash()
		d = e.one(src)
		e.notBefore(start, 2*e.lease, "it came back")
		e.by(start, 2*e.lease, "it came back")
		e.ack(src, d)
	}
}

func positionOutlivesProcess(e *driverEnv) {
	want := idsOf(e.publishN(6))
	for _, start := range []backend.Start{backend.StartEarliest, backend.StartLatest, backend.StartEarliest} {
		p, src := e.attachPeer(backend.Config{Group: "g", Start: start})
		ds := e.receive(src, 2)
		if got := ids(ds); !slices.Equal(got, want[:2]) {
			e.failf("got %v, want %v", got, want[:2])
		}
		e.ack(src, ds...)
		e.must(p.Close())
		want = want[2:]
	}
	e.nothing(e.attach("g"), e.lease/2, "all are acknowledged")
}
