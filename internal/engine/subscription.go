package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/batch"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A Mode says when a message is acknowledged.
type Mode uint8

// The modes.
const (
	OnSuccess Mode = iota // when the handler has returned nil
	OnReceive             // just before the handler runs
	Manual                // when the program says so
)

// An Order says which messages wait for each other.
type Order uint8

// The orders.
const (
	ByKey     Order = iota // the messages of one key
	Unordered              // none
	Total                  // all
)

// Config of a Subscription. Every field is set, and zero means none.
type Config struct {
	Topic, Group string
	Mode         Mode
	Order        Order
	Start        backend.Start
	Concurrency  int
	MaxInFlight  int
	Limiter      limiter.Limiter
	Lease        time.Duration
	Timeout      time.Duration // of one run
	Policy       Policy
	OnFailure    OnFailure
	DeadLetter   string // topic; empty: discard
	Handle       func(ctx context.Context, h *Hold) error
}

// A Subscription feeds a handler from a group.
//
// Its goroutines: fetch, watch and keep, from start to the end of the drain; up
// to Concurrency workers, hired when there is work; and while there is
// something to settle, one each for acks, delays and burials.
type Subscription struct {
	Config
	engine *Engine
	ground // of handlers

	sched    scheduler
	attempts attempts
	last     string // the highest position that came; the fetcher's
	turns    atomic.Int64
	anew     bool // the group was made anew and no Receive has succeeded since; the fetcher's
	workers  sync.WaitGroup
	acks     *batch.Group[*Hold]
	acking   []*backend.Delivery // memory for the one call under way
	delays   *batch.Group[*giveBack]
	burials  *batch.Group[burial]

	fetching   context.Context // done when nothing more is to be fetched
	stopFetch  context.CancelCauseFunc
	fetchEnded chan struct{}
	live       context.Context // for settling; done when a drain gives up
	giveUp     context.CancelCauseFunc
	keeping    context.Context // done when nothing is held any more
	stopKeep   context.CancelFunc
	keepers    sync.WaitGroup
	nudge      chan struct{} // for watch, when there is a new moment to watch for

	status   status
	counts   Counts
	draining sync.Once
	drained  chan struct{}
	ended    chan struct{} // closed when nothing more runs: after a drain, or a failure for good
	failure  error         // for good; valid once ended is closed
	ending   sync.Once
	left     Abandoned
	drainErr error

	attachment atomic.Pointer[attachment]

	mu        sync.Mutex
	reads     context.Context         // of the reads until the next Pause, or until renew
	pause     context.CancelCauseFunc // ends the Receive under way
	renew     time.Time
	resumed   chan struct{} // closed unless paused
	lastCalls time.Time     // when the calls after a drain has given up must end
}

const (
	acksPerCall   = 256
	ackWait       = 2 * time.Millisecond
	attachTimeout = 30 * time.Second
)

// Subscribe attaches to the group and starts. ctx bounds attaching; handlers
// inherit its values.
func (e *Engine) Subscribe(ctx context.Context, c Config) (*Subscription, error) {
	s := &Subscription{Config: c, engine: e, ground: ground{newClock(), context.WithoutCancel(ctx), &observer.TimeoutError{After: c.Timeout}}}
	s.fetchEnded, s.drained, s.nudge = make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	s.ended = make(chan struct{})
	s.resumed = make(chan struct{})
	close(s.resumed)
	s.status.init(s)
	s.Policy.Backoff = s.backoff(c.Policy.Backoff)
	if err := s.checkDeadLetter(ctx); err != nil {
		return nil, err
	}
	a, err := s.attach(ctx, c.Start)
	if err != nil {
		return nil, err
	}
	if err := s.checkAbilities(a); err != nil {
		return nil, errors.Join(err, a.source.Close())
	}
	s.attachment.Store(a)
	if err := e.join(s); err != nil {
		_ = a.source.Close() // or Shutdown has done so
		return nil, err
	}
	return s, nil
}

func (s *Subscription) start() {
	s.sched.init(s)
	most := acksPerCall
	if b := s.engine.limits.Batch; b > 0 {
		most = min(most, b)
	}
	wait := ackWait
	if s.Mode == OnReceive {
		wait = 0
	}
	s.acks = batch.New(most, wait, s.flushAcks)
	s.delays = batch.New(most, 0, s.flushDelays)
	s.burials = batch.New(most, 0, s.flushBurials)
	s.fetching, s.stopFetch = context.WithCancelCause(context.Background())
	s.live, s.giveUp = context.WithCancelCause(context.Background())
	s.keeping, s.stopKeep = context.WithCancel(context.Background())
	s.status.set(observer.Running, nil)
	s.engine.upkeep.join(s.Topic, s.Group)
	s.keepers.Go(s.watch)
	s.keepers.Go(s.keep)
	go s.fetch()
}

func (s *Subscription) attach(ctx context.Context, start backend.Start) (a *attachment, err error) {
	defer recovered(&err)
	src, err := s.engine.backend.Attach(ctx, backend.Config{
		Topic: s.Topic, Group: s.Group, Start: start, Lease: s.Lease, MaxInFlight: s.MaxInFlight,
		ConfirmAcks: s.Mode != OnSuccess, Notify: s.engine.tell.noticed,
	})
	if err != nil {
		return nil, err
	}
	a = &attachment{source: src}
	a.delayer, _ = backend.As[backend.Delayer](src)
	a.extender, _ = backend.As[backend.Extender](src)
	return a, nil
}

// checkDeadLetter finds out at start whether the dead-letter topic may be
// written to, where the backend can tell.
func (s *Subscription) checkDeadLetter(ctx context.Context) error {
	if s.DeadLetter == "" {
		return nil
	}
	if err := backend.Declare(ctx, s.engine.backend, s.DeadLetter); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("dead-letter topic %s: %w", s.DeadLetter, err)
	}
	return nil
}

// backoff returns f, which is the program's. If it panics, the event waits a second.
func (s *Subscription) backoff(f func(*Hold, error) time.Duration) func(*Hold, error) time.Duration {
	return func(h *Hold, cause error) (d time.Duration) {
		err := guarded(func() error { d = f(h, cause); return nil })
		if err != nil {
			s.engine.tell.failed(observer.Panic, h.about(), 1, fmt.Errorf("Retry.Delay: %w", err))
			return time.Second
		}
		return max(d, 0)
	}
}

// ErrNeedsExtender: the timeout asks for leases that the backend cannot extend.
var ErrNeedsExtender = errors.New("the backend cannot extend leases, so a handler must finish within one")

func (s *Subscription) checkAbilities(a *attachment) error {
	if a.extender == nil && (s.Timeout == 0 || s.Timeout >= s.Lease) {
		return ErrNeedsExtender
	}
	return nil
}

func (s *Subscription) attached() *attachment { return s.attachment.Load() }

// Pause takes no new messages until Resume. The Holds that there are go on.
func (s *Subscription) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isClosed(s.resumed) {
		return
	}
	s.resumed = make(chan struct{})
	if s.pause != nil {
		s.pause(errPaused)
	}
	s.status.set(observer.Paused, nil) // with the lock: a Resume may be on its heels
}

// Resume ends a Pause.
func (s *Subscription) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isClosed(s.resumed) {
		return
	}
	close(s.resumed)
	s.status.set(observer.Running, nil)
}

var errPaused = errors.New("eventbus: paused")

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Done is closed when the subscription is drained, or has failed for good.
func (s *Subscription) Done() <-chan struct{} { return s.ended }

// Err returns why the subscription has failed for good; nil: it has not.
func (s *Subscription) Err() error {
	if !isClosed(s.ended) {
		return nil
	}
	return s.failure
}

// end closes Done, once.
func (s *Subscription) end(failure error) {
	s.ending.Do(func() {
		s.failure = failure
		close(s.ended)
	})
}

// Drain ends the subscription: it receives no more, gives back the events that have not
// started, waits for handlers, settles and leaves the group. When ctx is done, Drain
// cancels the handlers, waits a second more and returns how many events it left behind.
// The first call does the work, and later calls wait for it. The first ctx that is done,
// of any call, cancels the handlers, so that no Drain makes a Shutdown late.
func (s *Subscription) Drain(ctx context.Context) (left Abandoned, err error) {
	first := false
	s.draining.Do(func() { first = true })
	if first {
		s.left, s.drainErr = s.drain(ctx)
		s.end(nil)
		close(s.drained)
	} else {
		defer s.hurry(ctx)()
		<-s.drained
	}
	return s.left, s.drainErr
}
