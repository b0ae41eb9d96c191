package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

// recoverFrom handles an error of Receive, and reports whether the fetcher continues. It usually
// waits before it returns. If the group is lost, it attaches again without waiting, because the new
// group misses events that are published before it exists. It does wait first if no Receive has
// succeeded since it last did so.
func (f *fetcher) recoverFrom(err error, again *wait.Backoff) bool {
	for {
		f.sub.notifier.failed(observer.Receive, f.about(), 0, err)
		if errors.Is(err, backend.ErrReplaced) {
			book := &f.sub.ledger
			book.lock()
			book.LoseAll(f.attachment.Load().holds, err) // the later incarnation has them
			book.unlock()
			f.sub.fail(err)
			return false
		}
		if errors.Is(err, backend.ErrClosed) || errors.Is(err, errors.ErrUnsupported) {
			f.sub.fail(err)
			return false
		}
		f.sub.status.trouble(noReceive, f.consumer, err)
		if errors.Is(err, backend.ErrGone) {
			if f.topicDeleted(err) {
				return false
			}
			if f.remade && !f.backOff(err, again.Next()) {
				return true
			}
			failure := f.reattach(err)
			if f.remade = failure == nil; f.remade {
				f.sub.status.clear(noReceive, f.consumer)
				return true
			}
			err = failure
			if !errors.Is(err, backend.ErrClosed) {
				err = fmt.Errorf("%w: attaching again: %w", backend.ErrGone, err)
			}
		}
		if !f.backOff(err, again.Next()) || !errors.Is(err, backend.ErrGone) {
			return true
		}
	}
}

// topicDeleted reports whether a topic that was found through a pattern has been deleted. If so, it
// ends the topic's consumer, because attaching again would recreate the topic. If topics can't be
// listed, the caller proceeds as for other topics.
func (f *fetcher) topicDeleted(why error) bool {
	if !f.found {
		return false
	}
	there, err := f.sub.engine.discovery.has(f.ctx, f.topic)
	if err != nil || there || f.ctx.Err() != nil {
		return false
	}
	f.endDeleted(why)
	return true
}

// begin attaches to a topic that was found while s was running, or that could not be attached
// before. It tries again after a failure. It reports whether the fetcher continues.
func (f *fetcher) begin(again *wait.Backoff) bool {
	defer f.barrier.wait(f.ctx)
	arrive := sync.OnceFunc(f.barrier.arrive)
	defer arrive()
	for f.attachment.Load() == nil {
		if f.ctx.Err() != nil {
			return false
		}
		err := f.beginOnce()
		arrive()
		switch {
		case err == nil:
			again.Reset()
			f.sub.status.clear(noReceive, f.consumer)
			return true
		case f.ctx.Err() != nil:
			return false
		case errors.Is(err, backend.ErrClosed):
			f.sub.fail(err)
			return false
		}
		f.reportAttachError(err)
		if !f.backOff(err, again.Next()) {
			return false
		}
		if f.topicDeleted(err) { // it was deleted in the meantime
			return false
		}
	}
	return true
}

// beginOnce attaches to the topic. At most maxConcurrentAttach fetchers do so at a time.
func (f *fetcher) beginOnce() error {
	select {
	case f.sub.consumers.opening <- struct{}{}:
		defer func() { <-f.sub.consumers.opening }()
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(f.ctx, attachTimeout)
	defer cancel()
	return f.open(ctx)
}

// reportAttachError reports, to the observer and in the status, that the topic can't be attached.
func (f *fetcher) reportAttachError(err error) {
	f.sub.notifier.failed(observer.Receive, f.about(), 0, err)
	f.sub.status.trouble(noReceive, f.consumer, err)
}

// backOff waits for d after a call has failed with err. If the broker could not be reached, it
// stops waiting when another call of the bus succeeds. It returns false if a drain has begun.
func (f *fetcher) backOff(err error, d time.Duration) bool {
	if isTransient(err) {
		return f.sub.engine.recovery.Sleep(f.ctx, d)
	}
	return wait.Sleep(f.ctx, d)
}

// reattach attaches to a lost group, which recreates the topic and the group. All Holds lose their
// leases, because they belong to the old group.
func (f *fetcher) reattach(why error) error {
	ctx, cancel := context.WithTimeout(f.ctx, attachTimeout)
	defer cancel()
	book, old := &f.sub.ledger, f.attachment.Load()
	book.lock()
	after := book.ResumeAfter(old.holds)
	book.unlock()
	f.sub.engine.settings[f.topic].forget()
	a, start, fresh, err := f.attachAfter(ctx, old.holds.Last(), after)
	if err != nil {
		return err
	}
	f.attachment.Store(a)
	book.lock()
	lost := book.Replace(old.holds, a.holds, fresh, why)
	book.unlock()
	_ = old.close() // may fail, because the group is gone
	f.sub.notifier.noticed(backend.Notice{
		Topic: f.topic, Group: f.sub.Group, Err: why,
		Text: fmt.Sprintf("the group was lost and has been created again, starting %s; events may be missing, and settled events may be redelivered, together with the %d that were held here",
			cmp.Or(string(start), "with the earliest"), lost),
	})
	return nil
}

// attachAfter attaches to a lost group so that it starts after the given position. If the backend
// refuses the position, the topic was lost, too. The group then starts with the earliest event,
// because all events are new.
func (f *fetcher) attachAfter(ctx context.Context, last, position string) (a *attachment, start backend.Start, fresh bool, err error) {
	switch {
	case position != "":
		start = backend.StartAfter(position)
	case last == "": // the member has received nothing yet
		start = f.start
	}
	a, err = f.attach(ctx, start)
	if position != "" && errors.Is(err, backend.ErrRefused) { // it is a position of the old topic
		start, fresh = backend.StartEarliest, true
		a, err = f.attach(ctx, start)
	}
	return a, start, fresh || last == "", err
}

// fail ends s, which has failed permanently. The program still has to call Drain.
func (s *Subscription) fail(err error) {
	if s.ctx.Err() != nil {
		return // a drain has begun, and will close s
	}
	err = fmt.Errorf("eventbus: subscription %s/%s: %w", s.Topic, s.Group, err)
	s.status.enter(observer.Closed, err)
	s.consumers.halt()
	s.end(err)
	s.engine.fail(err)
}
