package engine

import (
	"sync"
	"time"

	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A lockedLedger is the ledger of a subscription behind a lock. unlock carries out the ledger's
// effects.
type lockedLedger struct {
	sub *Subscription

	mu sync.Mutex
	*ledger.Ledger
	timer     *time.Timer   // calls tick at the time armed
	armed     instant       // zero if the timer is stopped
	quiet     chan struct{} // closed when the ledger is quiet
	changed   chan struct{} // gets a value after each unlock, once a drain has begun
	ended     bool
	workers   sync.WaitGroup
	unflushed []*consumer // those whose acknowledgements are waiting for a flush
}

func (b *lockedLedger) init(s *Subscription) {
	b.sub, b.quiet, b.changed = s, make(chan struct{}), make(chan struct{}, 1)
	b.Ledger = ledger.New(ledger.Config{
		Order: s.Order, Concurrency: s.Concurrency, MaxRedelivered: s.MaxRedelivered, MaxInFlight: s.MaxInFlight, MaxParked: parkedPerSlot * s.MaxInFlight,
		Lease: s.Lease, Timeout: s.Timeout, Entrusts: s.Mode == Manual, Fenced: s.engine.limits.FencedAcks,
		Single: s.Mode == OnReceive || s.FailAll,
		Batch:  s.Batch.Batch, Alone: s.Batch.Alone,
		Leaves: func(h *Hold) bool { return s.Policy.LeaveTimeouts && !s.Policy.last(h) },
	})
	b.timer = time.AfterFunc(time.Hour, b.tick)
	b.timer.Stop()
}

func (b *lockedLedger) lock() {
	b.mu.Lock()
	b.Now = b.sub.now()
}

// unlock carries out the effects of what was recorded since lock. The results of successful runs
// are passed to the limiter only with the next Hold that is released or the next failed run,
// because one call per run would cost more.
func (b *lockedLedger) unlock() {
	s, out := b.sub, &b.Out
	b.passAcks()
	for i, w := range out.Wake {
		out.Wake[i] = nil
		select {
		case w.Wake <- struct{}{}:
		default:
		}
	}
	out.Wake = out.Wake[:0]
	for ; out.Start > 0; out.Start-- {
		b.workers.Go(s.work)
	}
	if next := b.Next(); next != b.armed && !b.ended {
		b.armed = next
		if next == 0 {
			b.timer.Stop()
		} else {
			b.timer.Reset(time.Duration(next - b.Now))
		}
	}
	freed := limiter.Released{}
	if out.Freed.Settled > 0 || out.Freed.Failed > 0 || out.Freed.Bytes > 0 {
		freed, out.Freed = out.Freed, freed
	}
	rest := out.Rest
	out.Rest = nil
	if b.Quiet() && !isClosed(b.quiet) {
		close(b.quiet)
	}
	if b.Closed() {
		select {
		case b.changed <- struct{}{}:
		default:
		}
	}
	b.mu.Unlock()
	if freed != (limiter.Released{}) {
		s.Limiter.Release(freed)
	}
	if len(rest) > 0 {
		s.carryOut(rest)
	}
}

// passAcks passes acknowledgements to the queues of their topics. The caller holds mu.
func (b *lockedLedger) passAcks() {
	out := &b.Out
	for hs := out.Acks; len(hs) > 0; {
		c, n := consumerOf(hs[0]), 1
		for n < len(hs) && hs[n].Source == hs[0].Source {
			n++
		}
		c.settler.acks.Add(hs[:n]...)
		hs = hs[n:]
		if !c.unflushed {
			c.unflushed, b.unflushed = true, append(b.unflushed, c)
		}
	}
	clear(out.Acks)
	out.Acks = out.Acks[:0]
	if !out.FlushAcks {
		return
	}
	out.FlushAcks = false
	for i, c := range b.unflushed {
		c.settler.acks.Flush()
		c.unflushed, b.unflushed[i] = false, nil
	}
	b.unflushed = b.unflushed[:0]
}

// tick rings the alarms of the ledger that are due.
func (b *lockedLedger) tick() {
	b.lock()
	b.armed = 0
	b.Tick(b.Now)
	b.unlock()
}

// carryOut carries out effects of the ledger. The caller holds no lock.
func (s *Subscription) carryOut(effects []ledger.Effect) {
	var back []*Hold
	for _, e := range effects {
		switch e.Kind {
		case ledger.GiveBack:
			back = append(back, e.Hold)
		case ledger.Refuse:
			s.refuse(e.Hold)
		case ledger.TimedOut:
			go s.timedOut(e.Hold, e.Run)
		case ledger.Again:
			consumerOf(e.Hold).settler.again(e.Hold)
		case ledger.EndRun:
			s.endRun(e.Run, e.Err)
		case ledger.Lost:
			s.notifyLost(e.Hold, e.Run, e.Running, e.Err)
		case ledger.Stuck:
			notify(s.notifier.later.Stuck, observer.Stuck{About: s.aboutHold(e.Hold, e.Run), Running: e.For})
			s.reportLedger()
		case ledger.Unstuck, ledger.Crowded:
			s.reportLedger()
		case ledger.Extend:
			s.leases.wake()
		case ledger.EndRead:
			attachmentIn(e.Source).consumer.fetcher.endRead()
		case ledger.ReadMore:
			attachmentIn(e.Source).consumer.fetcher.wake()
		case ledger.Emptied:
			c := attachmentIn(e.Source).consumer
			c.empty.Do(func() { close(c.emptied) })
		}
	}
	for len(back) > 0 {
		n := 1
		for n < len(back) && back[n].Source == back[0].Source {
			n++
		}
		consumerOf(back[0]).settler.delays.Add(back[:n]...)
		back = back[n:]
	}
}

// parkedPerSlot limits how many events may wait without a slot for others with their key, as a
// multiple of MaxInFlight.
const parkedPerSlot = 16

// end stops the timer.
func (b *lockedLedger) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer.Stop()
	b.ended = true
}
