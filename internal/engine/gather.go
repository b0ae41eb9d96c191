package engine

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A gatherer tells the ledger when the messages of an earlier owner of a partition have arrived, see
// ledger.Gather. It belongs to the goroutine of the fetcher.
type gatherer struct {
	feed *feed
	done *attachment // it has gathered
	next time.Time   // of look
}

// gathers reports whether the ledger waits for messages of an earlier owner.
func (g *gatherer) gathers() bool {
	a := g.feed.attachment.Load()
	if g.feed.claim == nil || g.done == a {
		return false
	}
	b := &g.feed.sub.book
	b.lock()
	defer b.unlock()
	if a.book.Gathers() {
		return true
	}
	g.done = a
	return false
}

// lookForRest is the time between two looks whether all messages have arrived.
const lookForRest = 50 * time.Millisecond

// look asks the broker how many messages were delivered and are not settled. The fetcher calls it
// before each Receive.
func (g *gatherer) look(ctx context.Context) {
	if !g.gathers() || !sleep(ctx, time.Until(g.next)) {
		return
	}
	f := g.feed
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stats := backend.Stats{Unacked: backend.Unknown}
	err := driving("Stats", func() (err error) {
		stats, err = backend.StatsOf(ask, f.sub.engine.backend, f.topic, f.sub.Group)
		return err
	})
	g.next = time.Now().Add(lookForRest)
	a, b := f.attachment.Load(), &f.sub.book
	b.lock()
	defer b.unlock()
	switch {
	case err != nil && (passes(err) || ask.Err() != nil): // the next look may succeed
	case err != nil, stats.Unacked == backend.Unknown:
		a.book.Uncounted()
	default:
		b.Outstanding(a.book, int(stats.Unacked))
	}
}

// waited notes that a Receive has waited for d, and that nothing was due.
func (g *gatherer) waited(d time.Duration) {
	if !g.gathers() {
		return
	}
	b := &g.feed.sub.book
	b.lock()
	defer b.unlock()
	b.Waited(g.feed.attachment.Load().book, d)
}
