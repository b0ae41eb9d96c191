package ledger

import (
	"slices"
	"time"
)

// expireLeases finds leases that have expired, and records them as lost.
func (l *Ledger) expireLeases(now Instant) {
	next := Instant(0)
	for i := len(l.held) - 1; i >= 0; i-- { // Lose may remove the last element
		if i >= len(l.held) {
			continue
		}
		h := l.held[i]
		switch {
		case h.lost || h.leaseless || h.state >= settling:
		case h.until <= now:
			l.Lose(h, nil)
		case next == 0 || h.until < next:
			next = h.until
		}
	}
	if next != 0 {
		l.ringBy(&l.leases, next)
	}
	l.wakeWorker()
}

// extend emits the effect that asks the caller to extend leases.
func (l *Ledger) extend(Instant) {
	if len(l.held) > 0 {
		l.do(Effect{Kind: Extend})
	}
}

// HoldingSources returns the sources that have Holds.
func (l *Ledger) HoldingSources() (sources []*Source) {
	last, known := (*Source)(nil), map[*Source]bool{}
	for _, h := range l.held {
		if s := h.Source; s != last && !known[s] {
			last, known[s] = s, true
			sources = append(sources, s)
		}
	}
	return sources
}

// Extendable returns the Holds of s whose leases should be extended. The caller must call Answered
// for each of them.
func (l *Ledger) Extendable(s *Source) (hs []*Hold) {
	for _, h := range l.held {
		if h.Source == s && !h.lost && !h.leaseless && !h.left && !h.returning {
			h.extending = true
			hs = append(hs, h)
		}
	}
	return hs
}

// Answered records that the call to extend the lease of h has ended. It returns false if h has been
// released since it began.
func (l *Ledger) Answered(h *Hold) (held bool) {
	h.extending = false
	return h.state != released
}

// Extended records that the lease of h does not end before until.
func (l *Ledger) Extended(h *Hold, until Instant) { h.until = max(h.until, until) }

// NotExtended records that the lease of h is lost. It ignores a Hold that is being acknowledged
// before its run: the broker may have acknowledged it already, and then there is no lease to
// extend.
func (l *Ledger) NotExtended(h *Hold, err error) {
	if h.state == taken && h.wait != nil && !h.leaseless {
		return
	}
	l.Lose(h, err)
}

// ExtendIn schedules the next extension.
func (l *Ledger) ExtendIn(d time.Duration) {
	if len(l.held) > 0 && l.extension.at == 0 {
		l.set(&l.extension, l.Now.Plus(d))
	}
}

// Lost reports whether the lease of h is lost or has expired.
func (h *Hold) Lost() bool { return h.lost || !h.leaseless && h.until <= h.Source.ledger.Now }

// Until returns when the lease of h expires.
func (h *Hold) Until() Instant { return h.until }

// LeaseEnd returns a time by which the broker has certainly made h due again, unless its lease is
// extended. It is later than Until, because the broker may start the lease after Receive was
// called.
func (l *Ledger) LeaseEnd(h *Hold) Instant {
	return h.until.Plus(min(l.Lease/3, maxSlack))
}

// Lose records that the lease of h is lost, so another member may have the message. If h is
// running, Lose cancels the run. If h is being settled, Lose leaves it alone; otherwise it releases
// h.
func (l *Ledger) Lose(h *Hold, why error) {
	if h.lost || h.leaseless || h.state >= settling {
		return
	}
	h.lost = true
	runs := h.state == taken
	l.do(Effect{Kind: Lost, Hold: h, Run: h.Run, Running: runs && h.worker != nil && h.slot < h.worker.next.Load() && (h.wait == nil || h.leaseless), Err: why})
	l.do(Effect{Kind: EndRun, Run: h.Run, Err: LeaseLost(why)})
	if !runs {
		l.Release(h, LeaseLost(why))
	}
}

// LoseAll records that all Holds of s have lost their leases for the reason why, and returns how
// many there were.
func (l *Ledger) LoseAll(s *Source, why error) (lost int) {
	for _, h := range slices.Clone(l.held) {
		if h.Source == s {
			lost++
			l.Lose(h, why)
		}
	}
	l.wakeWorker()
	return lost
}
