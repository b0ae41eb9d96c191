// Package engine is the runtime of the bus. It owns the goroutines of all subscriptions.
//
// docs/engine.md is its map. An event passes through these files in order:
//
//	fetch.go       the fetcher receives it, and makes it a Hold
//	ledger.go      the ledger decides which Holds a worker gets
//	worker.go      the worker calls its handler (run.go)
//	policy.go      the Policy decides how to settle it
//	settle.go      the settler settles it (giveback.go, deadletter.go)
//
// The ledger (package ledger) also decides about timeouts and lost leases, whenever the timer in
// ledger.go fires. The lease extender (lease.go) extends leases, and the notifier (notifier.go)
// calls the observer. Independently of events there are jobs: maintenance (job.go), publishing
// scheduled events (schedule.go), finding topics (discovery.go) and owning partitions
// (partitionowner.go).
package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/publish"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

// Options configures an Engine.
type Options struct {
	Observer observer.Observer
	Publish  PublishOptions
	Instance string // see backend.Config.Instance; may be empty
	Program  string // names the process for operators
	Topics   map[string]Topic

	Partitions map[string]int // the numbers of partitions, by topic
}

// PublishOptions is [publish.Options].
type PublishOptions = publish.Options

// An Engine publishes to one backend and runs the subscriptions to it.
type Engine struct {
	backend        backend.Backend
	limits         backend.Limits
	notifier       *notifier
	publisher      *publish.Publisher
	dropped        atomic.Int64
	recovery       wait.Recovery
	discovery      discovery
	settings       map[string]*setup // declarations of topics, by name
	publishTimeout time.Duration
	partitions
	failed chan error // see Failed

	instance, incarnation string // of the members; both are empty if there is no instance
	program               string

	mu      sync.Mutex
	closing bool
	subs    map[*Subscription]struct{}
	jobs    map[[2]string]*sharedJob // maintenance, by topic and group
	movers  map[string]*mover        // of scheduled events, by topic
	down    chan struct{}            // closed when Shutdown has finished
	left    []Abandoned              // result of Shutdown; valid after down is closed
	downErr error                    // result of Shutdown; valid after down is closed
}

// New returns an Engine for b. Shutdown closes b.
func New(b backend.Backend, o Options) *Engine {
	e := &Engine{
		backend:    b,
		program:    o.Program,
		limits:     backend.LimitsOf(b),
		notifier:   newNotifier(o.Observer),
		partitions: newPartitions(b, o.Partitions),
		failed:     make(chan error, 1),
		subs:       map[*Subscription]struct{}{},
		jobs:       map[[2]string]*sharedJob{},
		movers:     map[string]*mover{},
		down:       make(chan struct{}),
	}
	if o.Instance != "" {
		e.instance, e.incarnation = o.Instance, rand.Text()
	}
	e.settings, e.publishTimeout = newSettings(e, e.partitions.withSettings(o.Topics)), o.Publish.Timeout
	e.discovery.init(e)
	o.Publish.Recovery = &e.recovery
	e.publisher = publish.New(b, o.Publish)
	return e
}

// Backend returns the backend.
func (e *Engine) Backend() backend.Backend { return e.backend }

// Limits returns the [backend.Limits] that the backend states.
func (e *Engine) Limits() backend.Limits { return e.limits }

// Failed returns a channel that gets the error of the first subscription that fails permanently.
func (e *Engine) Failed() <-chan error { return e.failed }

// Publish stores msgs as [publish.Publisher.Publish] does, and reports the result to the observer.
func (e *Engine) Publish(ctx context.Context, msgs []*backend.Message) error {
	var start time.Time
	if e.notifier.now.Published != nil {
		start = time.Now()
	}
	topic := ""
	if len(msgs) > 0 {
		topic = msgs[0].Topic // before route changes it
	}
	err := e.store(ctx, msgs)
	if err != nil && errors.Is(err, ErrDropped) {
		e.dropped.Add(int64(e.notifier.dropped(topic, msgs, err)))
	}
	if e.notifier.now.Published != nil {
		e.notifier.published(topic, msgs, time.Since(start), err)
	}
	return err
}

// store stores msgs, replacing a topic that has partitions with one of them. The first use of a
// topic declares it.
func (e *Engine) store(ctx context.Context, msgs []*backend.Message) error {
	if len(e.partitions) == 0 && len(e.settings) == 0 {
		return e.publisher.Publish(ctx, msgs)
	}
	before := setups{ctx: ctx, timeout: e.publishTimeout}
	defer before.end()
	divided := make([]*partitionedTopic, 0, 4) // the topics of msgs that have partitions
	for _, m := range msgs {
		if p := e.partitions[m.Topic]; p != nil {
			if !slices.Contains(divided, p) {
				if err := before.do(p.agree()); err != nil {
					return err
				}
				divided = append(divided, p)
			}
			m.Topic = p.partitionOf(m)
		}
		if err := before.do(e.settings[m.Topic]); err != nil {
			return err
		}
	}
	err := e.publisher.Publish(before.ctx, msgs)
	for _, p := range divided {
		err = p.confirm(&before, err)
	}
	return err
}

// Dropped returns how many messages have failed with ErrDropped so far.
func (e *Engine) Dropped() int64 { return e.dropped.Load() }

// Ready returns nil if each subscription is ready and the backend, if it supports Ping, answers
// one. The error names the backend first, then the subscriptions by topic and group.
func (e *Engine) Ready(ctx context.Context) error {
	subs, closing := e.subscriptions()
	if closing {
		return backend.ErrClosed
	}
	var errs []error
	ping := func() error { return backend.Ping(ctx, e.backend) }
	if err := callDriver("Ping", ping); !errors.Is(err, errors.ErrUnsupported) {
		errs = append(errs, err)
	}
	slices.SortStableFunc(subs, func(x, y *Subscription) int {
		return cmp.Or(strings.Compare(x.Topic, y.Topic), strings.Compare(x.Group, y.Group))
	})
	for _, s := range subs {
		if state, err := s.status.ready(); err != nil {
			errs = append(errs, fmt.Errorf("%s/%s is %s: %w", s.Topic, s.Group, state, err))
		}
	}
	return errors.Join(errs...)
}

// Subscriptions returns the subscriptions whose Drain has not finished. After Shutdown there are
// none.
func (e *Engine) Subscriptions() []*Subscription {
	subs, _ := e.subscriptions()
	return subs
}

func (e *Engine) subscriptions() (subs []*Subscription, closing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.subs)), e.closing
}

var errNotRunning = errors.New("not running")

// Shutdown drains every subscription, then closes the publisher and the backend. For each drain
// that left events behind, it returns how many. The first call does the work; later calls wait for
// it, each until its own ctx is done.
func (e *Engine) Shutdown(ctx context.Context) ([]Abandoned, error) {
	e.mu.Lock()
	first, subs := !e.closing, e.subs
	e.closing, e.subs = true, nil
	e.mu.Unlock()
	if first {
		e.left, e.downErr = e.shutdown(ctx, subs)
		close(e.down)
		return e.left, e.downErr
	}
	select {
	case <-e.down:
		return e.left, e.downErr
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (e *Engine) shutdown(ctx context.Context, subs map[*Subscription]struct{}) (left []Abandoned, err error) {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for s := range subs {
		wg.Go(func() {
			l, err := s.Drain(ctx)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			if l.Handlers+l.Unsettled > 0 {
				left = append(left, l)
			}
		})
	}
	wg.Wait()
	errs = append(errs, inTime(ctx, e.endMovers))
	errs = append(errs, inTime(ctx, func() error { return e.publisher.Close(ctx) }))
	errs = append(errs, inTime(ctx, func() error { return callDriver("Close", e.backend.Close) }))
	err = errors.Join(errs...)
	e.notifier.close(ctx, err)
	return left, err
}

// join registers s so that Shutdown drains it, and starts it. After Shutdown it fails with
// ErrClosed. A single lock covers both steps, so no subscription starts during a Shutdown.
func (e *Engine) join(s *Subscription) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return backend.ErrClosed
	}
	e.subs[s] = struct{}{}
	for topic := range s.consumers.byTopic { // nobody else uses it yet
		e.startJobs(topic, s)
	}
	e.startPartitionJobs(s)
	if s.searches() {
		e.discovery.begin()
	}
	s.roundRobin.setTopics(len(s.consumers.byTopic))
	s.start()
	return nil
}

// leave removes s, and ends the jobs that only s used.
func (e *Engine) leave(s *Subscription) {
	e.mu.Lock()
	delete(e.subs, s)
	e.mu.Unlock()
	for _, c := range s.consumers.all() {
		c.leaveTopic()
	}
	e.endPartitionJobs(s)
	if s.searches() {
		e.discovery.end()
	}
}

// fail sends err to the channel of Failed, unless that channel still holds an unread error.
func (e *Engine) fail(err error) {
	select {
	case e.failed <- err:
	default:
	}
}
