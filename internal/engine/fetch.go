package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A fetcher receives the events of a topic. Its goroutine owns anew and brought. The lock of the
// feeds guards pause.
type fetcher struct {
	*feed
	ctx  context.Context // done after a drain has begun
	room chan struct{}   // gets a value when the ledger wants more messages

	anew    bool // the group was made anew, and no Receive has succeeded since
	brought int  // how many events the last Receive has brought

	gatherer gatherer

	pause context.CancelFunc // cancels the Receive under way, or the wait for it
}

func newFetcher(f *feed) *fetcher {
	return &fetcher{feed: f, ctx: f.sub.ctx, room: make(chan struct{}, 1), gatherer: gatherer{feed: f}}
}

// fetch receives events until a drain begins or heal ends the subscription or the feed. It
// never asks for more than the limiter grants. It waits for each Receive to return.
func (f *fetcher) fetch() {
	again := newBackoff()
	for goesOn := f.begin(again); goesOn && f.ctx.Err() == nil; {
		f.gatherer.look(f.ctx)
		if f.sub.turns != nil && f.apart() {
			f.awaitRoom(f.ctx) // before the turn, because it may be that only this topic has no room
		}
		own, ok := f.sub.turns.take(f.ctx, f.brought > 0)
		if !ok {
			return
		}
		ctx, end, paused := f.session()
		if paused {
			f.sub.turns.leaves(own)
			f.awaitResume()
			continue
		}
		g := f.awaitGrant(ctx, own)
		var err error
		if g.Messages > 0 {
			f.sub.turns.begin(own, end)
			err = f.receive(ctx, g)
		}
		f.sub.turns.leaves(own)
		if g.Messages > 0 {
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
	if errors.Is(err, errNotOwned) { // the coordinator notices it too
		return sleep(f.ctx, emptyRead)
	}
	if p, ok := errors.AsType[*backend.PausedError](err); ok {
		again.Reset()
		f.halt(p)
		return true
	}
	if isOnlyEnd(ctx, err) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // it has waited for messages, so that the group is not paused
			f.sub.status.clear(halted, f.feed)
		}
		return true
	}
	return f.ctx.Err() != nil || f.heal(err, again)
}

// lookForResume is the time between two looks whether the group is still paused.
const lookForResume = time.Second

// halt shows that an operator has paused the group, and waits until the next Receive.
func (f *fetcher) halt(p *backend.PausedError) {
	f.sub.status.clear(noReceive, f.feed)
	f.sub.status.trouble(halted, f.feed, p)
	wait := lookForResume
	if until := p.Pause.Until; !until.IsZero() {
		wait = min(wait, max(time.Until(until), emptyRead))
	}
	sleep(f.ctx, wait)
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
	most := f.sub.Lease / 3
	if f.gatherer.gathers() {
		most = min(most, ledger.GatherTime)
	}
	f.sub.feeds.mu.Lock()
	defer f.sub.feeds.mu.Unlock()
	if !isClosed(f.sub.feeds.resumed) {
		return nil, nil, true
	}
	if f.claim != nil { // a Receive that waits for longer might get a lease that ends too late
		most = min(most, max(time.Until(f.claim.Until()), leastRetry))
	}
	ctx, f.pause = context.WithTimeout(f.ctx, most)
	return ctx, f.pause, false
}

// endRead cancels the Receive under way. The fetcher then makes the next one.
func (f *fetcher) endRead() {
	f.sub.feeds.mu.Lock()
	defer f.sub.feeds.mu.Unlock()
	if f.pause != nil {
		f.pause()
	}
}

func (f *fetcher) awaitResume() {
	f.sub.feeds.mu.Lock()
	resumed := f.sub.feeds.resumed
	f.sub.feeds.mu.Unlock()
	select {
	case <-resumed:
	case <-f.ctx.Done():
	}
}

// wake wakes the fetcher if it waits for room.
func (f *fetcher) wake() {
	select {
	case f.room <- struct{}{}:
	default:
	}
}

// emptyRead is the least time between the calls of two Receives if the first one returned
// no events.
const emptyRead = 5 * time.Millisecond

// receive asks for the messages that g grants, and gives the deliveries to the ledger.
func (f *fetcher) receive(ctx context.Context, g limiter.Grant) error {
	a := f.attachment.Load()
	asked := f.sub.tick()
	start := time.Now()
	n := g.Messages
	ds, err := a.receive(ctx, n, g.Bytes)
	took := time.Since(start)
	if len(ds) == 0 && (err == nil || isOnlyEnd(ctx, err)) {
		f.gatherer.waited(took)
	}
	if len(ds) < n {
		took = 0 // it waited for messages
	}
	// A Receive that was ended may not have looked, and one may have reached its bound in bytes.
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
	f.brought = len(ds)
	if err == nil { // before a handler runs, which may look at the state
		f.sub.status.clear(noReceive, f.feed)
		f.sub.status.clear(halted, f.feed)
	}
	switch {
	case len(ds) > 0:
		f.accept(a, ds, size, ledger.Receipt{Asked: asked, All: all}, took)
	case all:
		f.accept(a, nil, 0, ledger.Receipt{Asked: asked, All: true}, took)
		// A driver may return no events without waiting, again and again. This sleep then
		// keeps the processor free.
		if early := time.Until(f.sub.time(asked).Add(emptyRead)); early > 0 {
			sleep(ctx, early)
		}
	case f.sub.turns != nil:
		f.unread(a)
	}
	return err
}

// accept gives deliveries that have arrived, with a total size of size bytes, to the ledger.
// took is how long the Receive took, or zero if it waited.
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
		tell(s.notifier.later.Received, info)
	}
	n := len(ds)
	if n > 0 {
		s.book.mu.Lock()
		r.Holds = s.book.Fill(a.book, ds)
		s.book.mu.Unlock()
	}
	for _, h := range r.Holds {
		s.open(h)
		s.judge(h)
	}
	clear(ds) // otherwise the lent slice would keep payloads in memory until the next Receive
	s.book.lock()
	if took > 0 {
		s.book.Read(took)
	}
	a.book.Attempted(r, s.judge)
	s.book.Put(a.book, r)
	s.book.unlock()
	if n > 0 {
		runtime.Gosched() // starts the woken worker before the fetcher calls the next Receive
	}
}

// open reads the headers of the bus in h, which has arrived.
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

// judge decides whether h may run, before Put. The memory of the ledger may change h.Attempt, so
// that Attempted calls it again.
func (s *Subscription) judge(h *Hold) {
	h.Unfit, h.Suspect = s.unfit(h), s.Policy.suspect(h)
}
