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

// A line stands for the connections between a client and its broker.
type line struct {
	requests atomic.Int64

	mu         sync.Mutex
	down       int
	swallowing int
	frozen     chan struct{} // closed when the line thaws; nil if the line is not frozen
	broken     chan struct{} // closed when the connections break; then a new channel replaces it
	drops      []string      // the kinds of requests whose next answers get lost
}

func newLine() *line { return &line{broken: make(chan struct{})} }

// Down breaks the line and refuses requests until up is called.
func (l *line) Down() (up func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down++
	l.cut()
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.down--
	})
}

// Cut breaks the requests that are under way.
func (l *line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut()
}

func (l *line) cut() {
	close(l.broken)
	l.broken = make(chan struct{})
}

// Freeze delays all requests and answers until thaw is called.
func (l *line) Freeze() (thaw func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		l.frozen = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.frozen)
		l.frozen = nil
	})
}

// Swallow loses all answers until end is called.
func (l *line) Swallow() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swallowing++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.swallowing--
	})
}

// DropReply loses the answer to the next request of this kind.
func (l *line) DropReply(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops = append(l.drops, kind)
}

// Requests returns the number of requests that were sent so far.
func (l *line) Requests() int64 { return l.requests.Load() }

// dropped reports whether DropReply asked to lose the answer to a request of this kind. A
// true result uses up that DropReply.
func (l *line) dropped(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.drops, kind)
	if i >= 0 {
		l.drops = slices.Delete(l.drops, i, i+1)
	}
	return i >= 0
}

// A state is a snapshot of a line.
type state struct {
	down, swallowing bool
	frozen, broken   chan struct{}
}

func (l *line) state() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return state{l.down > 0, l.swallowing > 0, l.frozen, l.broken}
}

// request calls do at the broker and waits for the answer. On a frozen line, do runs after
// the thaw, even if the caller has given up. So do must not share memory with the caller.
func (l *line) request(ctx context.Context, kind string, do func() error) error {
	l.requests.Add(1)
	time.Sleep(travel)
	s := l.state()
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
	if later := l.answer(ctx, s, kind); later != nil {
		return later
	}
	return err
}

// answer waits for the answer to a request that the broker has handled. It returns an error
// if the answer gets lost. was is the state of the line when the request was sent.
func (l *line) answer(ctx context.Context, was state, kind string) error {
	now := l.state()
	done := make(chan error, 1)
	switch {
	case now.broken != was.broken:
		return unknown("connection reset")
	case l.dropped(kind):
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
