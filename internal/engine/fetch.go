package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// fetch reads ahead of the handlers, never more than the limiter grants, and
// outlives whatever may heal. A read that is under way is never abandoned.
func (s *Subscription) fetch() {
	defer close(s.fetchEnded)
	again := newBackoff()
	for s.fetching.Err() == nil {
		ctx, paused := s.session()
		if paused {
			s.awaitResume()
			continue
		}
		n := s.order(ctx)
		if n == 0 {
			continue
		}
		if err := s.receive(ctx, n); err != nil && ctx.Err() == nil {
			if !s.heal(err, again) {
				return
			}
			continue
		}
		again.Reset()
	}
}

// session returns the context of the reads until the next Pause.
func (s *Subscription) session() (ctx context.Context, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isClosed(s.resumed) {
		return nil, true
	}
	if s.pause == nil || s.reads.Err() != nil {
		s.reads, s.pause = context.WithCancelCause(s.fetching)
	}
	return s.reads, false
}

func (s *Subscription) awaitResume() {
	s.mu.Lock()
	resumed := s.resumed
	s.mu.Unlock()
	select {
	case <-resumed:
	case <-s.fetching.Done():
	}
}

// order waits until something may be read and the limiter grants it, and returns
// how much; 0 when ctx is done.
func (s *Subscription) order(ctx context.Context) int {
	n := s.desk.awaitRoom(ctx)
	if n == 0 {
		return 0
	}
	granted, err := s.Limiter.Acquire(ended, n)
	if err != nil {
		granted, err = s.acquire(ctx, n)
	}
	if err != nil && ctx.Err() == nil {
		s.engine.tell.failed(observer.Receive, s.about(), 0, fmt.Errorf("limiter: %w", err))
		sleep(ctx, time.Second)
	}
	return granted
}

// acquire waits for places. If those are taken by what waits behind events that
// are away, some of it makes room as soon as those are due: otherwise they could
// not come back.
func (s *Subscription) acquire(ctx context.Context, n int) (int, error) {
	for {
		due, yielded := s.desk.yield(time.Now())
		for _, b := range yielded {
			s.sendBack(b)
		}
		if due.IsZero() {
			return s.Limiter.Acquire(ctx, n)
		}
		wait, cancel := context.WithDeadlineCause(ctx, due, errDue)
		granted, err := s.Limiter.Acquire(wait, n)
		isDue := errors.Is(context.Cause(wait), errDue)
		cancel()
		if err == nil || !isDue {
			return granted, err
		}
	}
}

// errDue ends a wait for places when an event that is away is due.
var errDue = errors.New("due")

// emptyRead is the least time that a Receive which brings nothing takes.
const emptyRead = 5 * time.Millisecond

// ended is done: with it Acquire does not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// receive asks for n messages and puts what comes on the desk.
func (s *Subscription) receive(ctx context.Context, n int) error {
	a := s.attached()
	asked := time.Now()
	s.desk.ask(asked)
	ds, err := a.source.Receive(ctx, n)
	s.desk.ask(time.Time{})
	if len(ds) > n {
		s.engine.tell.failed(observer.Receive, s.about(), len(ds)-n,
			fmt.Errorf("eventbus: the driver returned %d, asked for %d: the rest is left to its lease", len(ds), n))
		ds = ds[:n]
	}
	if unused := n - len(ds); unused > 0 {
		s.Limiter.Release(limiter.Released{Unused: unused})
	}
	switch {
	case len(ds) > 0:
		s.accept(a, ds, asked, len(ds) < n && err == nil && ctx.Err() == nil)
	case err == nil && ctx.Err() == nil:
		s.desk.nothing(asked)
		// It may bring nothing, but a driver that does so at once, and again, is
		// not to keep a processor busy.
		if early := time.Until(asked.Add(emptyRead)); early > 0 {
			sleep(ctx, early)
		}
	}
	if err == nil {
		s.status.recovered()
	}
	return err
}

// accept takes what has arrived. short says that it is less than was asked for.
func (s *Subscription) accept(a *attachment, ds []backend.Delivery, asked time.Time, short bool) {
	info := observer.Received{Topic: s.Topic, Group: s.Group, Events: len(ds)}
	for i := range ds {
		info.Bytes += ds[i].Size()
		if ds[i].Attempt > 1 || ds[i].Again {
			info.Redelivered++
		}
	}
	s.counts.received.Add(int64(len(ds)))
	s.Limiter.Fill(len(ds), int64(info.Bytes))
	tell(s.engine.tell.later.Received, info)
	rest := s.desk.put(s.hold(a, ds, s.leaseFrom(asked)), asked, short)
	runtime.Gosched() // or the worker that was woken would wait until the next read is on its way
	for _, l := range rest.overtaken {
		s.afterLoss(l, nil)
	}
	for _, h := range rest.unreadable {
		s.setAside(h)
	}
	for _, h := range rest.spent {
		s.bury(h, ReasonNoVerdict, fmt.Errorf("eventbus: handed out %d times without a verdict", h.attempt))
	}
	for _, b := range rest.crowded {
		s.delays.Add(b)
	}
}

// heal deals with an error of Receive and reports whether to go on.
func (s *Subscription) heal(err error, again *backoff.ExponentialBackOff) bool {
	for {
		s.engine.tell.failed(observer.Receive, s.about(), 0, err)
		if errors.Is(err, backend.ErrClosed) || errors.Is(err, errors.ErrUnsupported) {
			s.fail(err)
			return false
		}
		s.status.set(observer.Degraded, err)
		if !sleep(s.fetching, again.NextBackOff()) {
			return true
		}
		if !errors.Is(err, backend.ErrGone) {
			return true
		}
		if err = s.reattach(err); err == nil {
			s.status.recovered()
			return true
		}
		if !errors.Is(err, backend.ErrClosed) {
			err = fmt.Errorf("%w: attaching again: %w", backend.ErrGone, err)
		}
	}
}

// reattach makes topic and group anew. What is held belongs to the old ones:
// its leases are lost.
func (s *Subscription) reattach(why error) error {
	ctx, cancel := context.WithTimeout(s.fetching, attachTimeout)
	defer cancel()
	a, err := s.attach(ctx)
	if err != nil {
		return err
	}
	old := s.attachment.Swap(a)
	s.loseAll(old, why)
	_ = old.source.Close() // it is gone already
	return nil
}

// fail ends a subscription that cannot go on. Its drain is up to the program.
func (s *Subscription) fail(err error) {
	if s.fetching.Err() != nil {
		return // it is ending anyway
	}
	err = fmt.Errorf("eventbus: subscription %s/%s: %w", s.Topic, s.Group, err)
	s.status.set(observer.Closed, err)
	s.engine.fail(err)
}

func (s *Subscription) about() observer.About {
	return observer.About{Topic: s.Topic, Group: s.Group}
}
