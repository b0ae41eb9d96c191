package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A fetcher receives the events of a topic. remade and lastRead belong to its goroutine. pause is
// guarded by the lock of the consumers.
type fetcher struct {
	*consumer
	ctx     context.Context // done once a drain has begun
	mayRead chan struct{}   // gets a value when the ledger wants more messages

	remade   bool // the group was recreated, and no Receive has succeeded since
	lastRead int  // how many events the last Receive returned

	takeover takeover

	pause context.CancelFunc // cancels the current Receive, or the wait for it
}

func newFetcher(c *consumer) *fetcher {
	return &fetcher{consumer: c, ctx: c.sub.ctx, mayRead: make(chan struct{}, 1), takeover: takeover{consumer: c}}
}

// fetch receives events until a drain begins, or until recoverFrom ends the subscription or the
// consumer. It never asks for more than the limiter grants, and it waits for each Receive to
// return.
func (f *fetcher) fetch() {
	again := wait.Broker()
	for more := f.begin(&again); more && f.ctx.Err() == nil; {
		f.takeover.poll(f.ctx)
		if f.sub.roundRobin != nil && f.apart() {
			f.awaitWanted(f.ctx) // before the turn, because perhaps only this topic may not read
		}
		own, ok := f.sub.roundRobin.acquire(f.ctx, f.lastRead > 0)
		if !ok {
			return
		}
		ctx, end, paused := f.session()
		if paused {
			f.sub.roundRobin.release(own)
			f.awaitResume()
			continue
		}
		g := f.awaitGrant(ctx, own)
		var err error
		if g.Messages > 0 {
			f.sub.roundRobin.begin(own, end)
			err = f.receive(ctx, g)
		}
		f.sub.roundRobin.release(own)
		if g.Messages > 0 {
			more = f.handleResult(ctx, err, &again)
		}
		end()
	}
}

// handleResult handles the result of a Receive with ctx, and reports whether the fetcher continues.
func (f *fetcher) handleResult(ctx context.Context, err error, again *wait.Backoff) bool {
	if err == nil {
		again.Reset()
		f.remade = false
		return true
	}
	if errors.Is(err, errNotOwned) { // the coordinator notices it, too
		return wait.Sleep(f.ctx, emptyRead)
	}
	if p, ok := errors.AsType[*backend.PausedError](err); ok {
		again.Reset()
		f.halt(p)
		return true
	}
	if isOnlyEnd(ctx, err) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // it has waited for messages, so the group isn't paused
			f.sub.status.clear(halted, f.consumer)
		}
		return true
	}
	return f.ctx.Err() != nil || f.recoverFrom(err, again)
}

// resumePoll is how often the fetcher checks whether the group is still paused.
const resumePoll = time.Second

// halt shows that an operator has paused the group, and waits until it is time for the next
// Receive.
func (f *fetcher) halt(p *backend.PausedError) {
	f.sub.status.clear(noReceive, f.consumer)
	f.sub.status.trouble(halted, f.consumer, p)
	delay := resumePoll
	if until := p.Pause.Until; !until.IsZero() {
		delay = min(delay, max(time.Until(until), emptyRead))
	}
	wait.Sleep(f.ctx, delay)
}

// isOnlyEnd reports whether err, returned by a Receive with ctx, only means that ctx has ended.
func isOnlyEnd(ctx context.Context, err error) bool {
	if ctx.Err() == nil {
		return false
	}
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	return ended && !backend.NotStored(err) && !errors.Is(err, backend.ErrUnknownOutcome) && !errors.Is(err, backend.ErrGone)
}

// session returns the context of the next Receive, unless the subscription is paused. The context
// ends after a third of a lease: since a lease counts from the call of Receive, an event then still
// has most of its lease left when it arrives. The caller must call end.
func (f *fetcher) session() (ctx context.Context, end func(), paused bool) {
	most := f.sub.Lease / 3
	if f.takeover.active() {
		most = min(most, ledger.TakeoverWait)
	}
	f.sub.consumers.mu.Lock()
	defer f.sub.consumers.mu.Unlock()
	if !isClosed(f.sub.consumers.resumed) {
		return nil, nil, true
	}
	if f.claim != nil { // a Receive that waits longer could get a lease that ends too late
		most = min(most, max(time.Until(f.claim.Until()), leastRetry))
	}
	ctx, f.pause = context.WithTimeout(f.ctx, most)
	return ctx, f.pause, false
}

// endRead cancels the current Receive. The fetcher then makes the next one.
func (f *fetcher) endRead() {
	f.sub.consumers.mu.Lock()
	defer f.sub.consumers.mu.Unlock()
	if f.pause != nil {
		f.pause()
	}
}

func (f *fetcher) awaitResume() {
	f.sub.consumers.mu.Lock()
	resumed := f.sub.consumers.resumed
	f.sub.consumers.mu.Unlock()
	select {
	case <-resumed:
	case <-f.ctx.Done():
	}
}

// wake wakes the fetcher if it is waiting for permission to read.
func (f *fetcher) wake() {
	select {
	case f.mayRead <- struct{}{}:
	default:
	}
}

// emptyRead is the minimum time between the calls of two Receives if the first one returned no
// events.
const emptyRead = 5 * time.Millisecond

// receive asks for the messages that g grants, and passes the deliveries to the ledger.
func (f *fetcher) receive(ctx context.Context, g limiter.Grant) error {
	a := f.attachment.Load()
	asked := f.sub.tick()
	start := time.Now()
	n := g.Messages
	ds, err := a.receive(ctx, n, g.Bytes)
	took := time.Since(start)
	if len(ds) == 0 && (err == nil || isOnlyEnd(ctx, err)) {
		f.takeover.waited(took)
	}
	if len(ds) < n {
		took = 0 // it waited for messages
	}
	// A Receive that was cut short may not have looked at all, and one may have hit its limit in
	// bytes.
	all := err == nil && ctx.Err() == nil && (len(ds) == 0 || g.Bytes <= 0 && len(ds) < n)
	if len(ds) > n {
		f.sub.notifier.failed(observer.Receive, f.about(), len(ds)-n,
			fmt.Errorf("eventbus: the driver returned %d, asked for %d: the rest is left to its lease", len(ds), n))
		ds = ds[:n]
	}
	size := 0
	for i := range ds {
		size += ds[i].Size()
	}
	f.sub.Limiter.Fill(g, len(ds), int64(size))
	f.lastRead = len(ds)
	if err == nil { // before a handler runs, which may look at the state
		f.sub.status.clear(noReceive, f.consumer)
		f.sub.status.clear(halted, f.consumer)
	}
	switch {
	case len(ds) > 0:
		f.accept(a, ds, size, ledger.Receipt{Asked: asked, All: all}, took)
	case all:
		f.accept(a, nil, 0, ledger.Receipt{Asked: asked, All: true}, took)
		// A driver may keep returning no events without waiting. This sleep then keeps the fetcher
		// from spinning.
		if early := time.Until(f.sub.time(asked).Add(emptyRead)); early > 0 {
			wait.Sleep(ctx, early)
		}
	case f.sub.roundRobin != nil:
		f.unread(a)
	}
	return err
}

// accept passes deliveries that have arrived, size bytes in total, to the ledger. took is how long
// the Receive took, or zero if it waited for messages.
func (f *fetcher) accept(a *attachment, ds []backend.Delivery, size int, r ledger.Receipt, took time.Duration) {
	s := f.sub
	if len(ds) > 0 {
		info := observer.Received{Topic: f.name, Group: s.Group, Events: len(ds), Bytes: size}
		for i := range ds {
			if ds[i].Redelivered {
				info.Redelivered++
			}
		}
		s.counts.received.Add(int64(len(ds)))
		notify(s.notifier.later.Received, info)
	}
	n := len(ds)
	if n > 0 {
		s.ledger.mu.Lock()
		r.Holds = s.ledger.Fill(a.holds, ds)
		s.ledger.mu.Unlock()
	}
	for _, h := range r.Holds {
		s.open(h)
		s.judge(h)
	}
	clear(ds) // otherwise the lent slice would keep payloads in memory until the next Receive
	s.ledger.lock()
	if took > 0 {
		s.ledger.ReadTook(took)
	}
	a.holds.CorrectAttempts(r, s.judge)
	s.ledger.Put(a.holds, r)
	s.ledger.unlock()
	if n > 0 {
		runtime.Gosched() // starts the woken worker before the fetcher calls the next Receive
	}
}

// open reads the bus's own headers of h, which has just arrived.
func (s *Subscription) open(h *Hold) {
	d := &h.Delivery
	if group := letter.Restore(&d.Message); group == s.Group {
		h.Redriven = true
	} else if group != "" {
		d.Err = errElsewhere
	}
	if most := s.MaxReceive; most > 0 && h.Size() > most && d.Err == nil {
		d.Err = fmt.Errorf("%w: %d bytes, more than MaxReceive, %d", backend.ErrTooLarge, h.Size(), most)
	}
}

// judge decides whether h may run, before Put. If CorrectAttempts changes h.Attempt, it calls judge
// again.
func (s *Subscription) judge(h *Hold) {
	h.Unfit, h.Suspect = s.unfit(h), s.Policy.suspect(h)
}
