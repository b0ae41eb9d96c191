package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/observer"
)

// A leaseExtender extends the leases of all Holds every third of a lease. After a failure it tries
// again after only a twelfth, because little of the lease is left. It has a goroutine only while it
// works.
type leaseExtender struct {
	sub  *Subscription
	ctx  context.Context
	stop context.CancelFunc

	mu    sync.Mutex
	works chan struct{} // closed when the current work has ended; nil if there is none
}

func (k *leaseExtender) init(s *Subscription) {
	k.sub = s
	k.ctx, k.stop = context.WithCancel(context.Background())
}

// wake starts the work unless it is already under way.
func (k *leaseExtender) wake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.works != nil || k.ctx.Err() != nil {
		return
	}
	k.works = make(chan struct{})
	go k.work()
}

func (k *leaseExtender) work() {
	next := max(k.sub.Lease/3, time.Millisecond)
	if !k.extend() {
		next = max(next/4, time.Millisecond)
	}
	k.mu.Lock()
	close(k.works)
	k.works = nil
	k.mu.Unlock()
	if k.ctx.Err() == nil {
		k.sub.ledger.lock()
		k.sub.ledger.ExtendIn(next)
		k.sub.ledger.unlock()
	}
}

// end prevents further work, and cancels the work under way. It returns a channel that is closed
// when that work has ended.
func (k *leaseExtender) end() <-chan struct{} {
	k.stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.works != nil {
		return k.works
	}
	idle := make(chan struct{})
	close(idle)
	return idle
}

// extend extends the leases of all Holds. It reports whether the broker answered for each Hold,
// even if the answer was that the lease is lost.
func (k *leaseExtender) extend() (answered bool) {
	s := k.sub
	s.ledger.lock()
	now := s.ledger.Now
	s.ledger.unlock()
	for _, c := range s.consumers.all() {
		c.settler.failures.check(now)
	}
	s.ledger.lock()
	sources := s.ledger.HoldingSources()
	s.ledger.unlock()
	return k.extendAll(sources)
}

// extendAll extends the leases of all Holds of the sources. Each source gets its own calls, so that
// one that hangs doesn't hold up the others.
func (k *leaseExtender) extendAll(sources []*ledger.Source) (answered bool) {
	if len(sources) == 1 {
		return k.extendOf(attachmentIn(sources[0]))
	}
	var failed atomic.Bool
	var calls sync.WaitGroup
	slots := make(chan struct{}, extendAtOnce)
	for _, src := range sources {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			if !k.extendOf(attachmentIn(src)) {
				failed.Store(true)
			}
		})
	}
	calls.Wait()
	return !failed.Load()
}

const extendAtOnce = 64 // Extend calls at the same time

func (k *leaseExtender) extendOf(a *attachment) (answered bool) {
	s := k.sub
	if a.extender == nil {
		return true
	}
	hs, ds := s.keepable(a)
	most := len(hs)
	if b := s.engine.limits.Batch; b > 0 {
		most = b
	}
	answered = true
	for len(hs) > 0 {
		n := min(most, len(hs))
		answered = k.extendSome(a, hs[:n], ds[:n]) && answered
		hs, ds = hs[n:], ds[n:]
	}
	return answered
}

func (k *leaseExtender) extendSome(a *attachment, hs []*Hold, ds []*backend.Delivery) (answered bool) {
	s, start := k.sub, time.Now()
	call, cancel := context.WithTimeout(k.ctx, max(s.Lease/3, time.Millisecond))
	defer cancel()
	err := a.extend(call, ds)
	if k.ctx.Err() != nil {
		return true
	}
	kept, troubled := 0, 0
	until := s.instant(start.Add(s.Lease))
	s.ledger.lock()
	for i, h := range hs {
		switch e := backend.ErrorAt(err, i); {
		case !s.ledger.Answered(h): // it has been released
		case e == nil:
			s.ledger.Extended(h, until)
			kept++
		case errors.Is(e, backend.ErrLeaseLost):
			s.ledger.NotExtended(h, e)
		default:
			troubled++ // the ledger notices if the lease expires
		}
	}
	s.ledger.unlock()
	if troubled > 0 {
		s.notifier.failed(observer.Extend, a.consumer.about(), troubled, err)
	}
	if kept > 0 {
		notify(s.notifier.later.Extended, observer.Extended{Topic: a.consumer.name, Group: s.Group, Events: kept, Took: time.Since(start)})
	}
	return troubled == 0
}

// keepable returns the Holds of attachment a whose leases should be extended, with copies of their
// deliveries, because releasing a Hold changes its delivery.
func (s *Subscription) keepable(a *attachment) (hs []*Hold, ds []*backend.Delivery) {
	s.ledger.lock()
	defer s.ledger.unlock()
	hs = s.ledger.Extendable(a.holds)
	lent := make([]backend.Delivery, len(hs))
	for i, h := range hs {
		lent[i] = h.Delivery
		ds = append(ds, &lent[i])
	}
	return hs, ds
}
