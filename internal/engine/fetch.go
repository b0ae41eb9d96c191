package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A fetcher receives events from the backend. Its goroutine owns last and anew; mu guards
// the fields below it.
type fetcher struct {
	sub   *Subscription
	ctx   context.Context // done after a drain has begun
	stop  context.CancelCauseFunc
	ended chan struct{} // closed when the goroutine has ended

	last string // the highest position received
	anew bool   // the group was made anew, and no Receive has succeeded since

	mu      sync.Mutex
	pause   context.CancelFunc // cancels the Receive under way, or the wait for it
	resumed chan struct{}      // open while paused, closed otherwise
}

func newFetcher(s *Subscription) *fetcher {
	f := &fetcher{sub: s, ended: make(chan struct{}), resumed: make(chan struct{})}
	f.ctx, f.stop = context.WithCancelCause(context.Background())
	close(f.resumed)
	return f
}

// fetch receives events until a drain begins or heal ends the subscription. It never asks
// for more than the limiter grants. It waits for each Receive to return.
func (f *fetcher) fetch() {
	defer close(f.ended)
	again := newBackoff()
	for goesOn := true; goesOn && f.ctx.Err() == nil; {
		ctx, end, paused := f.session()
		if paused {
			f.awaitResume()
			continue
		}
		if n := f.order(ctx); n > 0 {
			err := f.receive(ctx, n)
			goesOn = f.goesOn(ctx, err, again)
		}
		end()
	}
}

// goesOn handles the result of a Receive with ctx, and reports whether the fetcher continues.
func (f *fetcher) goesOn(ctx context.Context, err error, again *backoff.ExponentialBackOff) bool {
	if err == nil {
		again.Reset()
		f.anew = false
		return true
	}
	return f.ctx.Err() != nil || isOnlyEnd(ctx, err) || f.heal(err, again)
}

// isOnlyEnd reports whether err, of a Receive with ctx, says only that ctx has ended.
func isOnlyEnd(ctx context.Context, err error) bool {
	if ctx.Err() == nil {
		return false
	}
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	return ended && !backend.NotStored(err) && !errors.Is(err, backend.ErrUnknownOutcome) && !errors.Is(err, backend.ErrGone)
}

// session returns the context of the next Receive, unless the subscription is paused. The
// context ends after a third of a lease. So an event has most of its lease left when it
// arrives, because a lease is counted from the call of Receive. The caller calls end.
func (f *fetcher) session() (ctx context.Context, end func(), paused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !isClosed(f.resumed) {
		return nil, nil, true
	}
	ctx, f.pause = context.WithTimeout(f.ctx, f.sub.Lease/3)
	return ctx, f.pause, false
}

// endRead cancels the Receive under way. The fetcher then makes the next one.
func (f *fetcher) endRead() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pause != nil {
		f.pause()
	}
}

func (f *fetcher) awaitResume() {
	f.mu.Lock()
	resumed := f.resumed
	f.mu.Unlock()
	select {
	case <-resumed:
	case <-f.ctx.Done():
	}
}

// Pause stops receiving events until Resume. Held events are still handled.
func (s *Subscription) Pause() {
	f := s.fetcher
	f.mu.Lock()
	defer f.mu.Unlock()
	if !isClosed(f.resumed) {
		return
	}
	f.resumed = make(chan struct{})
	if f.pause != nil {
		f.pause()
	}
	s.status.set(observer.Paused, nil) // before unlock, so that a later Resume wins
}

// Resume ends a Pause.
func (s *Subscription) Resume() {
	f := s.fetcher
	f.mu.Lock()
	defer f.mu.Unlock()
	if isClosed(f.resumed) {
		return
	}
	close(f.resumed)
	s.status.set(observer.Running, nil)
}

// order waits for room in the scheduler and for the limiter. It returns how many messages
// the fetcher may receive; 0 if ctx is done or the limiter grants none.
func (f *fetcher) order(ctx context.Context) int {
	n := f.sub.sched.awaitRoom(ctx)
	if n == 0 {
		return 0
	}
	granted, err := f.sub.Limiter.Acquire(ctx, n)
	if err == nil {
		f.sub.status.leave(observer.Limited)
	}
	if err == nil || ctx.Err() != nil {
		return granted
	}
	if w, ok := errors.AsType[*limiter.WaitError](err); ok {
		f.sub.status.set(observer.Limited, err)
		sleep(ctx, max(time.Until(w.Until), emptyRead))
		return granted
	}
	f.sub.notifier.failed(observer.Receive, f.sub.about(), 0, fmt.Errorf("limiter: %w", err))
	sleep(ctx, time.Second)
	return granted
}

// emptyRead is the least time between the calls of two Receives if the first one returned
// no events.
const emptyRead = 5 * time.Millisecond

// receive asks for n messages and schedules the deliveries.
func (f *fetcher) receive(ctx context.Context, n int) error {
	a := f.sub.attachment.Load()
	asked := f.sub.tick()
	ds, err := a.receive(ctx, n)
	if len(ds) > n {
		f.sub.notifier.failed(observer.Receive, f.sub.about(), len(ds)-n,
			fmt.Errorf("eventbus: the driver returned %d, asked for %d: the rest is left to its lease", len(ds), n))
		ds = ds[:n]
	}
	if unused := n - len(ds); unused > 0 {
		f.sub.Limiter.Release(limiter.Released{Unused: unused})
	}
	switch {
	case len(ds) > 0:
		f.accept(a, ds, asked)
	case err == nil && ctx.Err() == nil:
		// A driver may return no events without waiting, again and again. This sleep then
		// keeps the processor free.
		if early := time.Until(f.sub.time(asked).Add(emptyRead)); early > 0 {
			sleep(ctx, early)
		}
	}
	if err == nil {
		f.sub.status.leave(observer.Degraded)
	}
	return err
}

// accept schedules deliveries that have arrived.
func (f *fetcher) accept(a *attachment, ds []backend.Delivery, asked moment) {
	info := observer.Received{Topic: f.sub.Topic, Group: f.sub.Group, Events: len(ds)}
	for i := range ds {
		info.Bytes += ds[i].Size()
		if ds[i].Redelivered {
			info.Redelivered++
		}
		f.last = max(f.last, ds[i].Position)
	}
	f.sub.counts.received.Add(int64(len(ds)))
	f.sub.Limiter.Fill(len(ds), int64(info.Bytes))
	tell(f.sub.notifier.later.Received, info)
	aside := f.sub.sched.put(f.hold(a, ds, asked))
	runtime.Gosched() // starts the woken worker before the fetcher calls the next Receive
	for _, h := range aside {
		if h.delivery.Err != nil {
			f.sub.settler.refuse(h)
		} else {
			f.sub.settler.bury(h, ReasonNoVerdict, errTooOften(h))
		}
	}
}

// heal handles an error of Receive, and reports whether the fetcher continues. Usually it
// waits before it returns. If the group is lost, heal attaches again without a wait,
// because a new group may miss events that are published before it exists. If no Receive
// has succeeded since the last such attach, heal waits first.
func (f *fetcher) heal(err error, again *backoff.ExponentialBackOff) bool {
	for {
		f.sub.notifier.failed(observer.Receive, f.sub.about(), 0, err)
		if errors.Is(err, backend.ErrClosed) || errors.Is(err, errors.ErrUnsupported) {
			f.sub.fail(err)
			return false
		}
		f.sub.status.set(observer.Degraded, err)
		if errors.Is(err, backend.ErrGone) {
			if f.anew && !sleep(f.ctx, again.NextBackOff()) {
				return true
			}
			failure := f.reattach(err)
			if f.anew = failure == nil; f.anew {
				f.sub.status.leave(observer.Degraded)
				return true
			}
			err = failure
			if !errors.Is(err, backend.ErrClosed) {
				err = fmt.Errorf("%w: attaching again: %w", backend.ErrGone, err)
			}
		}
		if !sleep(f.ctx, again.NextBackOff()) || !errors.Is(err, backend.ErrGone) {
			return true
		}
	}
}

// reattach attaches to a lost group, which makes topic and group anew. The leases of all
// Holds are lost, because the Holds belong to the old group.
func (f *fetcher) reattach(why error) error {
	ctx, cancel := context.WithTimeout(f.ctx, attachTimeout)
	defer cancel()
	a, start, err := f.attachAfter(ctx, f.last)
	if err != nil {
		return err
	}
	old := f.sub.attachment.Swap(a)
	lost := f.sub.sched.loseAll(old, why)
	_ = old.close() // may fail, because the group is gone
	f.sub.notifier.noticed(backend.Notice{
		Topic: f.sub.Topic, Group: f.sub.Group, Err: why,
		Text: fmt.Sprintf("the group was lost and is made anew, to start %s; events may be missing, and %d that were held here will not come again",
			cmp.Or(string(start), "with the earliest"), lost),
	})
	return nil
}

// attachAfter attaches to a lost group, to start after last, the highest position received.
// If the backend refuses last, the topic was lost too. The group then starts with the
// earliest event, because all events are new.
func (f *fetcher) attachAfter(ctx context.Context, last string) (a *attachment, start backend.Start, err error) {
	start = f.sub.Start
	if last != "" {
		start = backend.StartAfter(last)
	}
	a, err = f.sub.attach(ctx, start)
	if last != "" && errors.Is(err, backend.ErrRefused) {
		start = backend.StartEarliest
		if a, err = f.sub.attach(ctx, start); err == nil {
			f.last = "" // it was a position of the old topic
		}
	}
	return a, start, err
}

// fail ends s, which has failed for good. The program still has to call Drain.
func (s *Subscription) fail(err error) {
	if s.fetcher.ctx.Err() != nil {
		return // a drain has begun, and closes s
	}
	err = fmt.Errorf("eventbus: subscription %s/%s: %w", s.Topic, s.Group, err)
	s.status.set(observer.Closed, err)
	s.end(err)
	s.engine.fail(err)
}

func (s *Subscription) about() observer.About {
	return observer.About{Topic: s.Topic, Group: s.Group}
}
