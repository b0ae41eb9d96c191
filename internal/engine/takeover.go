package engine

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// A takeover informs the ledger when the messages of a partition's previous owner have arrived; see
// ledger.TakeOver. It belongs to the fetcher's goroutine.
type takeover struct {
	consumer *consumer
	done     *attachment // the attachment whose takeover is over
	next     time.Time   // time of the next poll
}

// active reports whether the ledger is still waiting for messages of the previous owner.
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

// takeoverPoll is how often the fetcher checks whether all messages have arrived.
const takeoverPoll = 50 * time.Millisecond

// poll asks the broker how many messages have been delivered but not settled. The fetcher calls it
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
	case err != nil && (isTransient(err) || ask.Err() != nil): // the next poll may succeed
	case err != nil, stats.Unacked == backend.Unknown:
		a.holds.Uncounted()
	default:
		b.Outstanding(a.holds, int(stats.Unacked))
	}
}

// waited records that a Receive waited for d and found nothing due.
func (g *takeover) waited(d time.Duration) {
	if !g.active() {
		return
	}
	b := &g.consumer.sub.ledger
	b.lock()
	defer b.unlock()
	b.Waited(g.consumer.attachment.Load().holds, d)
}
