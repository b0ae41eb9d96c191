// Package engine is the runtime of the bus: it owns every goroutine of a
// subscription, and every policy.
//
// An event passes these in order, each in a file of its own: the fetcher reads it, the
// scheduler (with its transitions and lanes) puts it in line, the runner invokes the
// handler, decide says what follows, and the settler acknowledges it, gives it back or
// puts it into the dead-letter topic. Beside that the watcher looks at the time, the
// keeper keeps leases, upkeep keeps the broker tidy, and the notifier speaks to the
// observer. Package publish writes events to the broker.
package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/publish"
	"github.com/seed41896749/eventbus/observer"
)

// Options of an Engine. Zero fields mean no bound.
type Options struct {
	Observer        observer.Observer
	PublishTimeout  time.Duration
	MaxPending      int
	MaxPendingBytes int
	WhenFull        WhenFull
}

// An Engine runs one backend.
type Engine struct {
	backend   backend.Backend
	limits    backend.Limits
	notifier  *notifier
	publisher *publish.Publisher
	dropped   atomic.Int64
	upkeep    upkeep
	failed    chan error // the first subscription that failed for good

	mu      sync.Mutex
	closing bool
	subs    map[*Subscription]struct{}
	down    chan struct{} // closed when Shutdown has ended
	left    []Abandoned
	downErr error
}

// New returns an Engine that owns b.
func New(b backend.Backend, o Options) *Engine {
	e := &Engine{
		backend:  b,
		limits:   backend.LimitsOf(b),
		notifier: newNotifier(o.Observer),
		failed:   make(chan error, 1),
		subs:     map[*Subscription]struct{}{},
		down:     make(chan struct{}),
	}
	e.publisher = newPublisher(b, o)
	e.upkeep.init(e)
	return e
}

// Backend returns the backend.
func (e *Engine) Backend() backend.Backend { return e.backend }

// Limits returns the facts that the backend states.
func (e *Engine) Limits() backend.Limits { return e.limits }

// Failed receives the error of the first subscription that failed for good.
func (e *Engine) Failed() <-chan error { return e.failed }

// Publish stores msgs; see package publish.
func (e *Engine) Publish(ctx context.Context, msgs []*backend.Message) error {
	var start time.Time
	if e.notifier.now.Published != nil {
		start = time.Now()
	}
	err := e.publisher.Publish(ctx, msgs)
	if err != nil && errors.Is(err, ErrDropped) {
		e.dropped.Add(int64(e.notifier.dropped(msgs, err)))
	}
	if e.notifier.now.Published != nil {
		e.notifier.published(msgs, time.Since(start), err)
	}
	return err
}

// Dropped is how many messages Publish has dropped.
func (e *Engine) Dropped() int64 { return e.dropped.Load() }

// Ready returns nil if the backend answers and every subscription runs, is limited or is
// paused.
func (e *Engine) Ready(ctx context.Context) error {
	subs, closing := e.subscriptions()
	if closing {
		return backend.ErrClosed
	}
	var errs []error
	if err := backend.Ping(ctx, e.backend); !errors.Is(err, errors.ErrUnsupported) {
		errs = append(errs, err)
	}
	for _, s := range subs {
		switch st, err := s.State(); st {
		case observer.Running, observer.Limited, observer.Paused:
		default:
			errs = append(errs, fmt.Errorf("%s/%s is %s: %w", s.Topic, s.Group, st, errOr(err, errNotRunning)))
		}
	}
	return errors.Join(errs...)
}

// Subscriptions lists the subscriptions that are not drained.
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

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// Shutdown drains every subscription, then the publisher, and closes the
// backend. It returns the events that the drains left behind. The first call does the
// work, and later calls wait for it.
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
	errs = append(errs, e.publisher.Close(ctx))
	errs = append(errs, e.backend.Close())
	e.notifier.close(ctx)
	return left, errors.Join(errs...)
}

// join starts s and registers it, so that Shutdown drains it. Both happen under one lock,
// so a refused Subscription has never run, and none starts during a Shutdown.
func (e *Engine) join(s *Subscription) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return backend.ErrClosed
	}
	e.subs[s] = struct{}{}
	s.start()
	return nil
}

func (e *Engine) leave(s *Subscription) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.subs, s)
}

// fail notes the first subscription that failed for good.
func (e *Engine) fail(err error) {
	select {
	case e.failed <- err:
	default:
	}
}
