package limiter

import (
	"context"
	"errors"
	"sync"

	"github.com/seed41896749/eventbus/internal/wait"
)

var _ Limiter = (*pool)(nil)

// A pool is a limiter with a limit on slots, one on bytes, or both; 0 means no limit. It serves
// callers in the order of their calls. Otherwise a subscription that waits for messages of an empty
// topic could take the same slots again and again.
type pool struct {
	slots int
	bytes int64

	mu      sync.Mutex
	taken   int                    // slots of open grants, and slots that hold messages
	open    Grant                  // the sum of the grants whose reads have not ended
	held    int64                  // the total size of the messages held, in bytes
	largest int64                  // the size of a message that was read alone; it shrinks with each read
	shared  bool                   // two grants were open at the same time
	waiting wait.Queue[int, Grant] // the waiting calls of Acquire, in order; while there are any, no slot is free
}

func newPool(slots int, bytes int64) *pool { return &pool{slots: slots, bytes: bytes} }

func (p *pool) Acquire(ctx context.Context, max int) (Grant, error) {
	g, w := p.take(max)
	if w == nil {
		return g, nil
	}
	select {
	case g := <-w.Granted:
		return g, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting.Leave(w) {
		return Grant{}, context.Cause(ctx)
	}
	return <-w.Granted, nil // granted just now
}

// take grants at most max slots, or returns a new waiter.
func (p *pool) take(max int) (Grant, *wait.Waiter[int, Grant]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = p.shared || p.open.Messages > 0
	if g := p.grant(max); g.Messages > 0 {
		return g, nil
	}
	return Grant{}, p.waiting.Join(max)
}

// grant grants as many slots as are free, at most max. The caller holds mu.
func (p *pool) grant(max int) Grant {
	g := Grant{Messages: max}
	if p.slots > 0 {
		g.Messages = min(max, p.slots-p.taken)
	}
	if p.bytes > 0 {
		if g.Bytes = p.budget(g.Messages); g.Bytes <= 0 {
			return Grant{}
		}
	}
	if g.Messages <= 0 {
		return Grant{}
	}
	p.taken += g.Messages
	p.open.Messages += g.Messages
	p.open.Bytes += g.Bytes
	return g
}

// shares is how many reads of many messages can be open at the same time under a limit of bytes. A
// read for a single message gets less, so that many of them can wait.
const (
	shares    = 8
	oneShares = 4096
)

// budget returns the bytes of the next grant for a number of messages, or zero or less if there are
// none. Each read may exceed its bytes by one message, so only one read gets fewer bytes than the
// largest message probably has. The caller holds mu.
func (p *pool) budget(messages int) int64 {
	free := p.bytes - p.held - p.open.Bytes
	share := max(p.bytes/shares, p.largest, 1)
	if messages == 1 && p.shared {
		share = max(p.bytes/oneShares, p.largest, 1)
	}
	switch {
	case free < share && p.open.Bytes > 0:
		return 0
	case free < share:
		return free
	case p.shared:
		return share
	}
	return max(share, free/2) // the other half is for a second subscription
}

// resize changes the limit on slots. Granted slots stay granted.
func (p *pool) resize(slots int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots = slots
	p.wake()
}

// filled returns how many slots hold messages.
func (p *pool) filled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken - p.open.Messages
}

func (p *pool) Fill(g Grant, n int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken -= g.Messages - n
	p.open.Messages -= g.Messages
	if p.bytes > 0 {
		p.open.Bytes -= g.Bytes
	}
	p.held += bytes
	if n > 0 {
		p.largest -= p.largest / shares
	}
	if n == 1 {
		p.largest = max(p.largest, bytes)
	}
	if p.open.Messages < 0 || p.open.Bytes < 0 {
		panic(errors.New("limiter: more filled than granted"))
	}
	p.wake()
}

func (p *pool) Release(r Released) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken -= r.Settled
	p.held -= r.Bytes
	if p.taken < p.open.Messages || p.held < 0 {
		panic(errors.New("limiter: more released than filled"))
	}
	p.wake()
}

// wake grants free slots to waiters, in order. The caller holds mu.
func (p *pool) wake() {
	p.waiting.Admit(func(max int) (Grant, bool) {
		g := p.grant(max)
		return g, g.Messages > 0
	})
}
