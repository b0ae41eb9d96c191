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

// A Mode says when a message is acknowledged. docs/engine.md lists the places that compare it.
type Mode uint8

// The values of Mode.
const (
	OnSuccess Mode = iota // when the handler returns nil
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
	Alone func(h *Hold) bool // reports whether h must be handled in a batch of its own

	// Handle sets the result of each run. If it is nil, there are no batches. If it calls begins,
	// the timeout counts from that moment instead of from the call of Handle.
	Handle func(ctx context.Context, runs []*Run, results []error, begins func())
}

// Config configures a Subscription. There are no defaults: the caller sets every field.
type Config struct {
	Topic            string        // as given by the program; one topic, unless Topics is set
	Topics           []string      // names and patterns of topics, see package pattern
	Partitions       int           // Topics are the partitions of Topic; 0 if it has none
	TokenLease       time.Duration // of a partition, longer than Lease; 0 if this member reads all partitions
	Group            string
	Mode             Mode
	Order            Order
	Start            backend.Start
	Ephemeral        bool // the group lives as long as this member; a backend that can't do that keeps it after a crash
	Concurrency      int
	MaxConcurrency   int // Resize accepts numbers from Concurrency to MaxConcurrency
	MaxRedelivered   int // how many redelivered events may run at the same time; 0 for no limit
	MaxInFlight      int
	Limiter          limiter.Limiter
	Lease            time.Duration
	Timeout          time.Duration // limits one run; 0 for no limit
	Policy           Policy
	FailAll          bool                        // after an event has failed permanently, later ones with its key go to the dead-letter topic without a run
	DeadLetter       string                      // the dead-letter topic; if empty, events are discarded unless DeadLetterSuffix is set
	DeadLetterSuffix string                      // appended to a topic's name to get its dead-letter topic
	MaxReceive       int64                       // bytes; larger messages are dead-lettered
	Buried           func(dead *backend.Message) // gets each dead letter; may be nil
	Handle           func(ctx context.Context, r *Run) error
	Batch            Batch
	Options          any // the program's options; the engine only keeps them
}

// A Subscription receives the events of a group and runs a handler for each.
//
// It uses these goroutines. The fetcher of each topic runs from the start to the end of the drain.
// Up to Concurrency workers are started when there is work. The lease extender has a goroutine
// while it works, and so has each queue of a settler while it isn't empty.
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
	roundRobin    *roundRobin // nil if there is only one topic
	leases        leaseExtender
	owner         partitionOwner
	settledPoller settledPoller

	ctx      context.Context // done once a drain has begun
	stop     context.CancelCauseFunc
	live     context.Context // the context of calls that settle; done when a drain gives up
	giveUp   context.CancelCauseFunc
	draining sync.Once
	over     chan struct{} // closed when a drain no longer waits for anything
	overOnce sync.Once
	drained  chan struct{}
	left     Abandoned
	drainErr error
	ending   sync.Once
	ended    chan struct{} // closed when nothing runs any longer: after a drain or a permanent failure
	failure  error         // see Err; valid after ended is closed
}

const attachTimeout = 30 * time.Second

// Subscribe attaches to the group in each of its topics, and starts the subscription. ctx bounds
// attaching. The contexts of handlers carry the values of ctx.
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

// reads returns how many topics of s may wait in Receive at the same time. It leaves half of the
// slots to the topics that have events.
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

// ErrNeedsExtender means that runs may last longer than a lease, but the backend can't extend
// leases.
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

// tick returns the current time, for a Receive call or the answer to a Delay. Each result is
// greater than all previous ones, even if the clock stands still.
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

// Done returns a channel that is closed when s is drained or has failed permanently.
func (s *Subscription) Done() <-chan struct{} { return s.ended }

// Err returns why the subscription has failed permanently, or nil if it hasn't.
func (s *Subscription) Err() error {
	if !isClosed(s.ended) {
		return nil
	}
	return s.failure
}

// end closes the channel of Done, after which Err returns failure. Only the first call has an
// effect.
func (s *Subscription) end(failure error) {
	s.ending.Do(func() {
		s.failure = failure
		close(s.ended)
	})
}

// Drain ends the subscription: it stops receiving, gives back the events that haven't started,
// waits for handlers, settles, and leaves the group. When ctx is done, Drain cancels the handlers,
// waits a second more, and returns how many events it left behind. The first call does the work,
// and later calls wait for it. The handlers are cancelled as soon as the ctx of any call is done,
// so that an earlier Drain doesn't delay a Shutdown.
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

// names returns the elements that aren't patterns.
func (c *Config) names() []string {
	return slices.DeleteFunc(slices.Clone(c.elements()), pattern.Is)
}

// searches reports whether one of the elements is a pattern.
func (c *Config) searches() bool { return slices.ContainsFunc(c.elements(), pattern.Is) }

// Matches reports whether topic is one of the topics of s, now or once it exists.
func (c *Config) Matches(topic string) bool {
	return slices.ContainsFunc(c.elements(), func(e string) bool { return pattern.Match(e, topic) })
}

// deadLetter returns the dead-letter topic of topic, or "" if events are discarded.
func (c *Config) deadLetter(topic string) string {
	if c.DeadLetter == "" && c.DeadLetterSuffix != "" {
		return topic + c.DeadLetterSuffix
	}
	return c.DeadLetter
}

// owns reports whether the subscription shares the partitions of its topic with other members.
func (c *Config) owns() bool { return c.TokenLease > 0 }

// Divide makes Topic a topic with n partitions. A member of a group that lives with it needs no
// tokens, because it reads all partitions.
func (c *Config) Divide(n int) {
	c.Partitions, c.Topics = n, make([]string, n)
	for i := range n {
		c.Topics[i] = partition.Topic(c.Topic, i)
	}
	if !c.Ephemeral {
		c.TokenLease, c.Lease = c.Lease, partition.EventLease(c.Lease)
	}
}
