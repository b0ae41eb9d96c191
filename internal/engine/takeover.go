package engine

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// A gatherer tells the ledger when the messages of an earlier owner of a partition have arrived, see
// ledger.Gather. It belongs to the goroutine of the fetcher.
type takeover struct {
	consumer *consumer
	done     *attachment // it has gathered
	next     time.Time   // of look
}

// gathers reports whether the ledger waits for messages of an earlier owner.
func (g *takeover) active() bool {
	a := g.consumer.attachment.Load()
	if g.consumer.claim == nil || g.done == a {
		return false
	}
	b := &g.consumer.sub.ledger
	b.lock()
	defer b.unlock()
	if a.holds.TakingOver() {
		return true
	}
	g.done = a
	return false
}

// takeoverPoll is the time between two looks whether all messages have arrived.
const takeoverPoll = 50 * time.Millisecond

// look asks the broker how many messages were delivered and are not settled. The fetcher calls it
// before each Receive.
func (g *takeover) poll(ctx context.Context) {
	if !g.active() || !wait.Sleep(ctx, time.Until(g.next)) {
		return
	}
	f := g.consumer
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stats := backend.Stats{Unacked: backend.Unknown}
	err := callDriver("Stats", func() (err error) {
		stats, err = backend.StatsOf(ask, f.sub.engine.backend, f.topic, f.sub.Group)
		return err
	})
	g.next = time.Now().Add(takeoverPoll)
	a, b := f.attachment.Load(), &f.sub.ledger
	b.lock()
	defer b.unlock()
	switch {
	case err != nil && (isTransient(err) || ask.Err() != nil): // the next look may succeed
	case err != nil, stats.Unacked == backend.Unknown:
		a.holds.Uncounted()
	default:
		b.Outstanding(a.holds, int(stats.Unacked))
	}
}

// waited notes that a Receive has waited for d, and that nothing was due.
func (g *takeover) waited(d time.Duration) {
	if !g.active() {
		return
	}
	b := &g.consumer.sub.ledger
	b.lock()
	defer b.unlock()
	b.Waited(g.consumer.attachment.Load().holds, d)
}
