package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/observer"
)

// errKeyFailed is the reason to dead-letter an event without a run (FailAll).
var errKeyFailed = unrun(ReasonKeyFailed, errors.New("eventbus: an earlier event of its key has failed for good"))

// mostHanging bounds the runs of one event that hang in this member, so that an event whose handler
// never returns does not take the places of all others. Further attempts fail without a run.
const mostHanging = 3

// notRun is asked on a worker before r. It returns the reason to settle the Hold h of r without a
// run, as an error that decide turns into the verdict; nil: h runs. Without FailAll no worker gets a
// Hold that is unfit. In handleEach, OnReceive acknowledges h
// before; FailAll excludes OnReceive.
func (s *Subscription) notRun(r *Run) error {
	h := r.hold
	if r.hanging >= mostHanging {
		return &observer.NotRunError{Err: fmt.Errorf("eventbus: %d runs of the event have not returned: %w", r.hanging, s.timeout)}
	}
	if !s.FailAll {
		return nil
	}
	s.book.lock()
	follows := h.KeyFailed()
	s.book.unlock()
	switch {
	case follows:
		return errKeyFailed
	case h.Delivery.Err != nil:
		return unrun(ReasonTooLarge, h.Delivery.Err)
	case s.Policy.spent(h):
		return errTooOften(h)
	}
	return nil
}

// unfit is asked when h arrives. It reports whether refuse settles h without a worker: its
// Delivery.Err is set, or it is spent, see [Policy.spent]. With FailAll a spent or too large Hold
// keeps its place in its lane, and a worker dead-letters it, see notRun.
func (s *Subscription) unfit(h *Hold) bool {
	if s.FailAll {
		return h.Delivery.Err != nil && !errors.Is(h.Delivery.Err, backend.ErrTooLarge)
	}
	return h.Delivery.Err != nil || s.Policy.spent(h)
}

// inherit returns the failed keys of earlier owners of a partition; nil: the owners hand on none.
func (f *feed) inherit(ctx context.Context) (keys *partition.FailedKeys, err error) {
	s := f.sub
	if f.claim == nil || !s.FailAll {
		return nil, nil
	}
	err = driving("Read", func() error {
		keys, err = partition.ReadFailed(ctx, s.engine.backend, s.Topic, s.Group, f.partition, s.Partitions)
		return err
	})
	return keys, err
}

// handsOn returns the failed key of h that the next owner of the partition has to know. ok is false
// if there is none.
func (f *feed) handsOn(h *Hold, reason string) (key string, ok bool) {
	f.sub.book.lock()
	defer f.sub.book.unlock()
	if f.failed == nil || reason == ReasonKeyFailed {
		return "", false
	}
	return h.OrderKey()
}

// handOn returns the message that tells the next owner of key; nil: there is none to store.
func (f *feed) handOn(key string) *backend.Message {
	m, full := f.failed.Message(key)
	if full {
		f.full.Do(func() {
			f.sub.notifier.noticed(backend.Notice{Topic: f.topic, Group: f.sub.Group, Text: fmt.Sprintf(
				"more than %d keys have failed for good: the later ones hold for the present owner of the partition alone; ReleaseKey makes room", partition.MostFailed)})
		})
	}
	return m
}

// ReleaseKey ends the effect of FailAll on key: the handler gets later events of key again.
// It reports whether FailAll had an effect on key.
func (s *Subscription) ReleaseKey(key string) bool {
	all := s.feeds.all()
	removals := map[*feed]func(context.Context) error{}
	s.book.lock()
	had := s.book.ReleaseKey(key)
	for _, f := range all {
		if f.failed == nil || !had {
			continue
		}
		if remove := f.failed.Release(key); remove != nil { // now, because the key may fail again
			removals[f] = remove
		}
	}
	s.book.unlock()
	for f, remove := range removals {
		f.release(remove)
	}
	return had
}

// releaseTime is how long ReleaseKey waits for the broker at most.
const releaseTime = 10 * time.Second

// release calls remove, so that the next owner of the partition handles events of the key, too.
func (f *feed) release(remove func(context.Context) error) {
	s := f.sub
	ctx, cancel := context.WithTimeout(s.live, releaseTime)
	defer cancel()
	for again := newBackoff(); ; {
		err := driving("Remove", func() error { return remove(ctx) })
		if err == nil {
			return
		}
		if passes(err) && sleep(ctx, again.NextBackOff()) {
			continue
		}
		s.notifier.failed(observer.DeadLettering, f.about(), 1, fmt.Errorf("the next owner of partition %d will know the released key as failed: %w", f.partition, err))
		return
	}
}

// FailedKeys returns the keys of which an event has failed for good (FailAll), sorted.
func (s *Subscription) FailedKeys() []string {
	s.book.lock()
	defer s.book.unlock()
	return s.book.FailedKeys()
}
