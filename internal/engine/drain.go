package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

const (
	lastWait = time.Second            // how long a drain waits for cancelled handlers and for settlements
	overWait = 900 * time.Millisecond // how long it then waits for calls of the driver and of the program
)

// errStuckDriver is the error of a drain that has stopped waiting for a call of the driver.
var errStuckDriver = errors.New("eventbus: a call of the driver has not returned in time")

func (s *Subscription) drain(ctx context.Context) (left Abandoned, err error) {
	s.status.enter(observer.Draining, nil)
	s.stop(ErrShutdown)
	s.ledger.lock()
	s.ledger.Close()
	s.ledger.unlock()
	defer s.hurry(ctx)()
	s.owner.drain()

	handlers := s.awaitQuiet()
	_ = s.consumers.all() // waits for a search that is about to start a fetcher
	s.await(done(s.consumers.fetching.Wait))
	s.awaitSettled()
	s.await(s.leases.end())
	s.ledger.lock()
	unsettled := s.ledger.Abandon(ErrShutdown)
	s.ledger.unlock()
	s.counts.abandoned.Add(int64(unsettled))
	closed := make(chan error, 2)
	s.await(done(func() { closed <- s.owner.close() }))
	s.await(done(func() { s.engine.leave(s) })) // before the group may end, which Maintain would mistake for a fault
	s.await(done(func() { closed <- s.consumers.close() }))
	for range cap(closed) {
		select {
		case e := <-closed:
			err = errors.Join(err, e)
		default:
			err = errStuckDriver
		}
	}
	s.giveUp(ErrShutdown)
	s.ledger.end()
	s.status.enter(observer.Closed, nil)
	return Abandoned{Topic: s.Topic, Group: s.Group, Handlers: handlers, Unsettled: unsettled}, err
}

// hurry cancels the handlers when ctx is done. The drain gives up lastWait after that, and ends
// overWait later, even if a call of the driver has not returned by then.
func (s *Subscription) hurry(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		s.ledger.lock()
		s.ledger.Interrupt(ErrShutdown)
		s.ledger.unlock()
		time.AfterFunc(lastWait, func() {
			s.giveUp(ErrShutdown)
			s.ledger.lock()
			s.ledger.RepeatNow()
			s.ledger.unlock()
			time.AfterFunc(overWait, func() { s.overOnce.Do(func() { close(s.over) }) })
		})
	})
}

// await waits until c is closed or the drain is over.
func (s *Subscription) await(c <-chan struct{}) {
	select {
	case <-c:
	case <-s.over:
	}
}

// inTime returns the result of f, or errStuckDriver if f has not returned by the time a drain with
// ctx would be over. In that case f keeps running.
func inTime(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	over := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWait+overWait, func() { close(over) }) })()
	select {
	case err := <-result:
		return err
	case <-over:
		return errStuckDriver
	}
}

// done calls f in a separate goroutine, and returns a channel that is closed when f has returned.
func done(f func()) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		f()
	}()
	return c
}

// awaitQuiet waits until all workers have ended and, in manual mode, the program has settled
// its deliveries, or until the drain gives up. It returns how many handlers are still running.
func (s *Subscription) awaitQuiet() int {
	select {
	case <-done(func() {
		<-s.ledger.quiet
		s.ledger.workers.Wait() // after its last run, a worker settles the event and calls a hook
	}):
	case <-s.live.Done():
	}
	s.ledger.lock()
	defer s.ledger.unlock()
	return s.ledger.Stats().Running
}

// awaitSettled waits until no Hold is being settled, or until the drain gives up. After that it
// waits for the last calls.
func (s *Subscription) awaitSettled() {
	for {
		s.ledger.mu.Lock()
		settled := s.ledger.Settling() == 0
		s.ledger.mu.Unlock()
		if settled {
			break
		}
		select {
		case <-s.ledger.changed:
			continue
		case <-s.live.Done():
		}
		break
	}
	s.await(done(func() {
		_ = s.consumers.each(func(c *consumer) error { c.settler.idle(); return nil })
	}))
}
