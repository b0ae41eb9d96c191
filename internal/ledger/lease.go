package ledger

import (
	"slices"
	"time"
)

// expireLeases finds the leases that have expired.
func (l *Ledger) expireLeases(now Instant) {
	next := Instant(0)
	for i := len(l.held) - 1; i >= 0; i-- { // Lose may remove the last
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

// extend asks for the extension of leases.
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

// Extendable returns the Holds of s whose leases are to be extended. The caller calls Answered for
// each of them.
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

// NotExtended records that the lease of h is lost. This does not apply to a Hold that is being
// acknowledged before its run: if the broker has acknowledged it, it has no lease.
func (l *Ledger) NotExtended(h *Hold, err error) {
	if h.state == taken && h.wait != nil && !h.leaseless {
		return
	}
	l.Lose(h, err)
}

// ExtendIn plans the next extension.
func (l *Ledger) ExtendIn(d time.Duration) {
	if len(l.held) > 0 && l.extension.at == 0 {
		l.set(&l.extension, l.Now.Plus(d))
	}
}

// Lost reports whether the lease of h is lost, or has ended.
func (h *Hold) Lost() bool { return h.lost || !h.leaseless && h.until <= h.Source.ledger.Now }

// Until returns when the lease of h ends.
func (h *Hold) Until() Instant { return h.until }

// LeaseEnd returns a time by which the broker has certainly made h due again, unless a call extends
// the lease. The broker counts the lease from later than until does.
func (l *Ledger) LeaseEnd(h *Hold) Instant {
	return h.until.Plus(min(l.Lease/3, maxSlack))
}

// Lose records that the lease of h is lost, so that another member may have the message. It cancels
// the run of h. If h does not run, Lose releases it; if h is being settled, Lose does nothing.
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

// LoseAll records that all Holds of s lost their leases because of why, and returns how many.
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
