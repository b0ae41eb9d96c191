package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/pattern"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A Mode is when a message is acknowledged. docs/engine.md lists the places that compare it.
type Mode uint8

// The values of Mode.
const (
	OnSuccess Mode = iota // when the handler has returned nil
	OnReceive             // just before the handler runs
	Manual                // when the program calls Ack or Nack
)

// An Order says which messages run one after another.
type Order = ledger.Order

// The values of Order.
const (
	ByKey     = ledger.ByKey
	Unordered = ledger.Unordered
	Total     = ledger.Total
)

// Bounds says when a batch is full.
type Bounds = ledger.Batch

// A Batch makes the handler one of batches.
type Batch struct {
	ledger.Batch
	Alone func(h *Hold) bool // h is to be handled in a batch of its own

	// Handle sets the result of each run; nil: there are no batches. If it calls begins, the
	// timeout counts from this moment, and not from the call of Handle.
	Handle func(ctx context.Context, runs []*Run, results []error, begins func())
}

// Config of a Subscription. It has no defaults: the caller sets every field.
type Config struct {
	Topic            string        // as the program gave it; one topic, unless Topics is set
	Topics           []string      // names and patterns of topics, see package pattern
	Partitions       int           // Topics are the partitions of Topic; 0: it has none
	TokenLease       time.Duration // of a partition, longer than Lease; 0: this member reads all partitions
	Group            string
	Mode             Mode
	Order            Order
	Start            backend.Start
	Ephemeral        bool // the group lives with this member; backends that cannot do that keep it after a crash
	Concurrency      int
	MaxConcurrency   int // the bounds of Resize are Concurrency and MaxConcurrency
	MaxRedelivered   int // the most redelivered events that run at the same time; 0: no limit
	MaxInFlight      int
	Limiter          limiter.Limiter
	Lease            time.Duration
	Timeout          time.Duration // bounds one run; 0: none
	Policy           Policy
	FailAll          bool                        // after an event failed for good, later ones of its key go to the dead-letter topic without a run
	DeadLetter       string                      // the dead-letter topic; empty: discard, unless DeadLetterSuffix is set
	DeadLetterSuffix string                      // the dead-letter topic of a topic is its name with this suffix
	MaxReceive       int64                       // bytes; larger messages are dead-lettered
	Buried           func(dead *backend.Message) // gets each dead letter; may be nil
	Handle           func(ctx context.Context, r *Run) error
	Batch            Batch
	Options          any // the options of the program; the engine only keeps them
}

// A Subscription receives the events of a group and runs a handler for each.
//
// It has these goroutines. The fetcher of each topic runs from start to the end of the drain. Up to
// Concurrency workers are started when there is work. The lease extender has one while it works,
// and each queue of a settler has one while it is not empty.
type Subscription struct {
	Config
	engine   *Engine
	notifier *notifier
	runEnv   // shared by the contexts of handlers

	ticks   atomic.Int64 // the last result of tick
	failing failing
	status  status
	counts  counters

	ledger        lockedLedger
	consumers     consumers
	roundRobin    *roundRobin // nil: there is one topic
	leases        leaseExtender
	owner         partitionOwner
	settledPoller settledPoller

	ctx      context.Context // done after a drain has begun
	stop     context.CancelCauseFunc
	live     context.Context // the context of calls that settle; done when a drain gives up
	giveUp   context.CancelCauseFunc
	draining sync.Once
	over     chan struct{} // closed when a drain waits for nothing more
	overOnce sync.Once
	drained  chan struct{}
	left     Abandoned
	drainErr error
	ending   sync.Once
	ended    chan struct{} // closed when nothing more runs: after a drain, or a failure for good
	failure  error         // see Err; valid after ended is closed
}

const attachTimeout = 30 * time.Second

// Subscribe attaches to the group in each of its topics, and starts the subscription. ctx bounds
// attaching. The contexts of handlers have the values of ctx.
func (e *Engine) Subscribe(ctx context.Context, c Config) (*Subscription, error) {
	s := &Subscription{Config: c, engine: e, notifier: e.notifier, drained: make(chan struct{}), ended: make(chan struct{}), over: make(chan struct{})}
	s.runEnv = runEnv{newClock(), context.WithoutCancel(ctx), &observer.TimeoutError{After: c.Timeout}}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.live, s.giveUp = context.WithCancelCause(context.Background())
	s.status.init(s)
	s.ledger.init(s)
	s.leases.init(s)
	s.consumers.init(s)
	s.owner.sub = s
	s.Policy.exact = e.limits.Refund
	if len(s.elements()) > 1 || s.searches() {
		s.roundRobin = newRoundRobin(s.reads())
	}
	err := s.consumers.openAll(ctx)
	if err == nil {
		err = e.join(s)
	}
	if err != nil {
		s.stop(err)
		if closed := errors.Join(s.consumers.close(), s.owner.close()); closed != nil && !errors.Is(err, backend.ErrClosed) { // Shutdown closes the backend
			err = errors.Join(err, closed)
		}
		return nil, err
	}
	return s, nil
}

// reads returns how many topics of s may wait in Receive at the same time. Half of the slots are
// left to the topics that have events.
func (s *Subscription) reads() int {
	n := max(s.MaxInFlight/2, 1)
	if r := s.engine.limits.Receivers; r > 0 {
		n = min(n, r)
	}
	return n
}

func (s *Subscription) start() {
	s.status.enter(observer.Running, nil)
	s.consumers.start()
	s.owner.start()
	s.settledPoller.start(s)
}

// ErrNeedsExtender means that runs may last longer than a lease, and that the backend
// cannot extend leases.
var ErrNeedsExtender = errors.New("the backend cannot extend leases, so a handler must finish within one")

func (c *Config) check(a *attachment) error {
	if a.extender == nil && (c.Timeout == 0 || c.Timeout+c.Batch.Wait >= c.Lease) {
		return ErrNeedsExtender
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// tick returns the current time for a call of Receive, or for the answer to a Delay. Each result is
// greater than all results before it, even if the clock stands still.
func (s *Subscription) tick() instant {
	for {
		last := s.ticks.Load()
		next := max(last+1, int64(s.instant(time.Now())))
		if s.ticks.CompareAndSwap(last, next) {
			return instant(next)
		}
	}
}

// Draining returns a channel that is closed when a drain begins.
func (s *Subscription) Draining() <-chan struct{} { return s.ctx.Done() }

// Done returns a channel that is closed when s is drained, or has failed for good.
func (s *Subscription) Done() <-chan struct{} { return s.ended }

// Err returns why the subscription has failed for good; nil: it has not.
func (s *Subscription) Err() error {
	if !isClosed(s.ended) {
		return nil
	}
	return s.failure
}

// end closes the channel of Done. After that Err returns failure. Only the first call has
// an effect.
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
// of any call, cancels the handlers, so that an earlier Drain does not delay a Shutdown.
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

// elements returns the names and patterns of s.
func (c *Config) elements() []string {
	if len(c.Topics) == 0 {
		return []string{c.Topic}
	}
	return c.Topics
}

// names returns the elements that are no patterns.
func (c *Config) names() []string {
	return slices.DeleteFunc(slices.Clone(c.elements()), pattern.Is)
}

// searches reports whether one of the elements is a pattern.
func (c *Config) searches() bool { return slices.ContainsFunc(c.elements(), pattern.Is) }

// Matches reports whether topic is one of the topics of s, now or when it exists.
func (c *Config) Matches(topic string) bool {
	return slices.ContainsFunc(c.elements(), func(e string) bool { return pattern.Match(e, topic) })
}

// deadLetter returns the dead-letter topic of topic; empty: discard.
func (c *Config) deadLetter(topic string) string {
	if c.DeadLetter == "" && c.DeadLetterSuffix != "" {
		return topic + c.DeadLetterSuffix
	}
	return c.DeadLetter
}

// owns reports whether the subscription shares the partitions of its topic with other members.
func (c *Config) owns() bool { return c.TokenLease > 0 }

// Divide makes Topic a topic with n partitions. A member of a group that lives with it needs no
// tokens, because it has all partitions.
func (c *Config) Divide(n int) {
	c.Partitions, c.Topics = n, make([]string, n)
	for i := range n {
		c.Topics[i] = partition.Topic(c.Topic, i)
	}
	if !c.Ephemeral {
		c.TokenLease, c.Lease = c.Lease, partition.EventLease(c.Lease)
	}
}
