package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// wanted returns how many messages the ledger wants now. If it wants none, mayRead gets a value
// later.
func (f *fetcher) wanted() int {
	b := &f.sub.ledger
	b.lock()
	defer b.unlock()
	return b.Wanted(f.attachment.Load().holds)
}

// apart reports whether the ledger may want messages of other topics even if it wants none of this
// one.
func (f *fetcher) apart() bool {
	a, b := f.attachment.Load(), &f.sub.ledger
	if a == nil {
		return false
	}
	b.lock()
	defer b.unlock()
	return b.Apart(a.holds)
}

// awaitWanted waits until the ledger wants messages, and returns how many, or 0 if ctx is done.
func (f *fetcher) awaitWanted(ctx context.Context) int {
	for ctx.Err() == nil {
		if n := f.wanted(); n > 0 {
			return n
		}
		select {
		case <-f.mayRead:
		case <-ctx.Done():
		}
	}
	return 0
}

// reserve returns how many of n messages a Receive in the turn own asks for. That Receive will
// probably return as many as the previous one, so other topics may read that much less in the
// meantime. A single message is not reserved, because most Receives wait for just one.
func (f *fetcher) reserve(own *turn, n int) int {
	if !own.busy {
		return 1
	}
	b := &f.sub.ledger
	b.lock()
	defer b.unlock()
	b.Reserve(f.attachment.Load().holds, max(min(n, f.lastRead)-1, 0))
	return n
}

// acquire asks the limiter for slots. If it has to wait, it may cut Receives of other topics short.
func (f *fetcher) acquire(ctx context.Context, n int) (g limiter.Grant, err error) {
	if f.sub.roundRobin == nil {
		return f.sub.Limiter.Acquire(ctx, n)
	}
	g, err = f.sub.Limiter.Acquire(atOnce, n)
	if _, waits := errors.AsType[*limiter.WaitError](err); g.Messages > 0 || waits {
		return g, err
	}
	f.sub.roundRobin.whileWaiting(func() { g, err = f.sub.Limiter.Acquire(ctx, n) })
	return g, err
}

// atOnce is a context that is already done, for a call that must not wait.
var atOnce = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// awaitGrant waits for the ledger and then for the limiter. It returns how many messages the
// fetcher may receive, which is none if ctx is done or the limiter grants none. If there are
// several topics, one without events asks for a single message, so that its Receive takes up little
// while it waits.
func (f *fetcher) awaitGrant(ctx context.Context, own *turn) limiter.Grant {
	n := f.wanted()
	if n == 0 && own != nil && f.apart() {
		return limiter.Grant{}
	}
	if n == 0 {
		f.sub.roundRobin.whileWaiting(func() { n = f.awaitWanted(ctx) })
	}
	if n == 0 {
		return limiter.Grant{}
	}
	if own != nil {
		n = f.reserve(own, n)
	}
	granted, err := f.acquire(ctx, n)
	if granted.Messages == 0 && own != nil {
		f.unread(f.attachment.Load())
	}
	if err == nil {
		f.sub.status.clear(limited, nil)
		f.sub.status.clear(limiterFails, nil)
	}
	if err == nil || ctx.Err() != nil {
		return granted
	}
	if w, ok := errors.AsType[*limiter.WaitError](err); ok {
		f.sub.status.trouble(limited, nil, err)
		wait.Sleep(ctx, max(time.Until(w.Until), emptyRead))
		return granted
	}
	err = fmt.Errorf("limiter: %w", err)
	f.sub.notifier.failed(observer.Receive, f.about(), 0, err)
	f.sub.status.trouble(limiterFails, nil, err)
	wait.Sleep(ctx, time.Second)
	return granted
}

// unread ends the reservation that reserve has made, if the Receive returned no deliveries or never
// happened.
func (f *fetcher) unread(a *attachment) {
	b := &f.sub.ledger
	b.lock()
	defer b.unlock()
	b.Unreserve(a.holds)
}
