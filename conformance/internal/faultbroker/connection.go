package faultbroker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	travel   = 100 * time.Microsecond // time of a request to the broker, and of its answer back
	watchdog = 2 * time.Second        // how long a client waits for an answer
)

// A connection stands for the sockets between a client and its broker.
type connection struct {
	requests atomic.Int64

	mu         sync.Mutex
	down       int
	swallowing int
	frozen     chan struct{} // closed when the connection thaws; nil if the connection is not frozen
	broken     chan struct{} // closed when the connections break; then a new channel replaces it
	drops      []string      // the kinds of requests whose next answers get lost
}

func newConnection() *connection { return &connection{broken: make(chan struct{})} }

// Down breaks the connection and refuses requests until up is called.
func (c *connection) Down() (up func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down++
	c.cut()
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.down--
	})
}

// Cut breaks the requests that are under way.
func (c *connection) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut()
}

func (c *connection) cut() {
	close(c.broken)
	c.broken = make(chan struct{})
}

// Freeze delays all requests and answers until thaw is called.
func (c *connection) Freeze() (thaw func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen == nil {
		c.frozen = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.frozen)
		c.frozen = nil
	})
}

// Swallow loses all answers until end is called.
func (c *connection) Swallow() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swallowing++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.swallowing--
	})
}

// DropReply loses the answer to the next request of this kind.
func (c *connection) DropReply(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops = append(c.drops, kind)
}

// Requests returns the number of requests that were sent so far.
func (c *connection) Requests() int64 { return c.requests.Load() }

// dropped reports whether DropReply asked to lose the answer to a request of this kind. A
// true result uses up that DropReply.
func (c *connection) dropped(kind string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.drops, kind)
	if i >= 0 {
		c.drops = slices.Delete(c.drops, i, i+1)
	}
	return i >= 0
}

// A state is a snapshot of a connection.
type state struct {
	down, swallowing bool
	frozen, broken   chan struct{}
}

func (c *connection) state() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return state{c.down > 0, c.swallowing > 0, c.frozen, c.broken}
}

// request calls do at the broker and waits for the answer. On a frozen connection, do runs after
// the thaw, even if the caller has given up, so do must not share memory with the caller.
func (c *connection) request(ctx context.Context, kind string, do func() error) error {
	c.requests.Add(1)
	time.Sleep(travel)
	s := c.state()
	if s.down {
		return fmt.Errorf("connection refused: %w", backend.ErrUnavailable)
	}
	if s.frozen != nil {
		done := make(chan error, 1)
		go func() {
			select {
			case <-s.frozen:
				done <- do()
			case <-s.broken:
				done <- unknown("connection reset")
			}
		}()
		return within(ctx, done)
	}
	err := do()
	time.Sleep(travel)
	if later := c.answer(ctx, s, kind); later != nil {
		return later
	}
	return err
}

// answer waits for the answer to a request that the broker has handled. It returns an error
// if the answer gets lost. was is the state of the connection when the request was sent.
func (c *connection) answer(ctx context.Context, was state, kind string) error {
	now := c.state()
	done := make(chan error, 1)
	switch {
	case now.broken != was.broken:
		return unknown("connection reset")
	case c.dropped(kind):
		return unknown("connection reset")
	case now.swallowing:
		return within(ctx, done)
	case now.frozen != nil:
		go func() {
			select {
			case <-now.frozen:
				done <- nil
			case <-now.broken:
				done <- unknown("connection reset")
			}
		}()
		return within(ctx, done)
	}
	return nil
}

// within waits for an answer, until ctx is done or the watchdog of the client gives up.
func within(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, ctx.Err())
	case <-time.After(watchdog):
		return unknown("no answer")
	}
}

func unknown(why string) error { return fmt.Errorf("%s: %w", why, backend.ErrUnknownOutcome) }
