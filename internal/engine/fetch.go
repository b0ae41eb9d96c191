package engine

import (
	"cmp"
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
		switch err := s.receive(ctx, n); {
		case err == nil:
			again.Reset()
			s.anew = false
		case s.fetching.Err() == nil && !isOnlyEnd(ctx, err) && !s.heal(err, again):
			return
		}
	}
}

// isOnlyEnd reports whether err says no more than that ctx, of a Receive, has ended.
func isOnlyEnd(ctx context.Context, err error) bool {
	if ctx.Err() == nil {
		return false
	}
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	return ended && !backend.NotStored(err) && !errors.Is(err, backend.ErrUnknownOutcome) && !errors.Is(err, backend.ErrGone)
}

// session returns the context of the reads until the next Pause. It also ends a third
// of a lease after it was made, at the latest, because leases are counted from when a
// Receive was called: an event that arrives has most of its lease before it. An
// answer that was under way for longer, or that a frozen process has not read, is too
// late to be run.
func (s *Subscription) session() (ctx context.Context, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isClosed(s.resumed) {
		return nil, true
	}
	if now := time.Now(); s.pause == nil || s.reads.Err() != nil || now.After(s.renew) {
		var release context.CancelFunc
		if s.pause != nil {
			s.pause(nil)
		}
		s.reads, s.pause = context.WithCancelCause(s.fetching)
		s.reads, release = context.WithTimeout(s.reads, s.Lease/3)
		context.AfterFunc(s.reads, release)
		s.renew = now.Add(s.Lease / 12)
	}
	return s.reads, false
}

// endRead ends the Receive under way.
func (s *Subscription) endRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pause != nil {
		s.pause(nil)
	}
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
	n := s.sched.awaitRoom(ctx)
	if n == 0 {
		return 0
	}
	granted, err := s.Limiter.Acquire(ctx, n)
	if err != nil && ctx.Err() == nil {
		s.engine.tell.failed(observer.Receive, s.about(), 0, fmt.Errorf("limiter: %w", err))
		sleep(ctx, time.Second)
	}
	return granted
}

// emptyRead is the least time that a Receive which brings nothing takes.
const emptyRead = 5 * time.Millisecond

// receive asks for n messages and schedules the deliveries.
func (s *Subscription) receive(ctx context.Context, n int) error {
	a := s.attached()
	asked, turn := time.Now(), s.turns.Add(1)
	ds, err := a.receive(ctx, n)
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
		s.accept(a, ds, asked, turn)
	case err == nil && ctx.Err() == nil:
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

// accept schedules deliveries that have arrived.
func (s *Subscription) accept(a *attachment, ds []backend.Delivery, asked time.Time, turn int64) {
	info := observer.Received{Topic: s.Topic, Group: s.Group, Events: len(ds)}
	for i := range ds {
		info.Bytes += ds[i].Size()
		if ds[i].Attempt > 1 {
			info.Redelivered++
		}
		s.last = max(s.last, ds[i].Position)
	}
	s.counts.received.Add(int64(len(ds)))
	s.Limiter.Fill(len(ds), int64(info.Bytes))
	tell(s.engine.tell.later.Received, info)
	aside := s.sched.put(s.hold(a, ds, turn, asked))
	runtime.Gosched() // or the worker that was woken would wait until the next read is on its way
	for _, h := range aside {
		if h.delivery.Err != nil {
			s.setAside(h)
		} else {
			s.bury(h, ReasonNoVerdict, errTooOften(h))
		}
	}
}

// heal deals with an error of Receive and reports whether to go on. It attaches to a
// lost group at once, because the group may miss the events that are published until
// then. If no Receive has succeeded since it did so last, it waits a while before.
func (s *Subscription) heal(err error, again *backoff.ExponentialBackOff) bool {
	for {
		s.engine.tell.failed(observer.Receive, s.about(), 0, err)
		if errors.Is(err, backend.ErrClosed) || errors.Is(err, errors.ErrUnsupported) {
			s.fail(err)
			return false
		}
		s.status.set(observer.Degraded, err)
		if errors.Is(err, backend.ErrGone) {
			if s.anew && !sleep(s.fetching, again.NextBackOff()) {
				return true
			}
			failure := s.reattach(err)
			if s.anew = failure == nil; s.anew {
				s.status.recovered()
				return true
			}
			err = failure
			if !errors.Is(err, backend.ErrClosed) {
				err = fmt.Errorf("%w: attaching again: %w", backend.ErrGone, err)
			}
		}
		if !sleep(s.fetching, again.NextBackOff()) || !errors.Is(err, backend.ErrGone) {
			return true
		}
	}
}

// reattach makes topic and group anew. All Holds belong to the old group, so their
// leases are lost.
func (s *Subscription) reattach(why error) error {
	ctx, cancel := context.WithTimeout(s.fetching, attachTimeout)
	defer cancel()
	a, start, err := s.attachAfter(ctx, s.last)
	if err != nil {
		return err
	}
	old := s.attachment.Swap(a)
	lost := s.sched.loseAll(old, why)
	_ = old.close() // it is gone already
	s.engine.tell.noticed(backend.Notice{
		Topic: s.Topic, Group: s.Group, Err: why,
		Text: fmt.Sprintf("the group was lost and is made anew, to start %s; events may be missing, and %d that were held here will not come again",
			cmp.Or(string(start), "with the earliest"), lost),
	})
	return nil
}

// attachAfter attaches to a group that was lost, to go on after the last position
// that came here. If the backend refuses that position the topic was lost too, and
// all that it has now is new.
func (s *Subscription) attachAfter(ctx context.Context, last string) (a *attachment, start backend.Start, err error) {
	start = s.Start
	if last != "" {
		start = backend.StartAfter(last)
	}
	a, err = s.attach(ctx, start)
	if last != "" && errors.Is(err, backend.ErrRefused) {
		start = backend.StartEarliest
		a, err = s.attach(ctx, start)
	}
	return a, start, err
}

// fail ends a subscription that cannot go on. Its drain is up to the program.
func (s *Subscription) fail(err error) {
	if s.fetching.Err() != nil {
		return // it is ending anyway
	}
	err = fmt.Errorf("eventbus: subscription %s/%s: %w", s.Topic, s.Group, err)
	s.status.set(observer.Closed, err)
	s.end(err)
	s.engine.fail(err)
}

func (s *Subscription) about() observer.About {
	return observer.About{Topic: s.Topic, Group: s.Group}
}
