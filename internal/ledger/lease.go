package ledger

import (
	"time"
)

// expireLeases notices the leases that have ended.
func (l *Ledger) expireLeases(now Moment) {
	next := Moment(0)
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
		l.by(&l.leases, next)
	}
	l.rouse()
}

// extend asks for the extension of leases.
func (l *Ledger) extend(Moment) {
	if len(l.held) > 0 {
		l.do(Effect{Kind: Extend})
	}
}

// Holding returns the sources that have Holds.
func (l *Ledger) Holding() (sources []*Source) {
	last, known := (*Source)(nil), map[*Source]bool{}
	for _, h := range l.held {
		if s := h.Source; s != last && !known[s] {
			last, known[s] = s, true
			sources = append(sources, s)
		}
	}
	return sources
}

// Keepable returns the Holds of s whose leases are to be extended. The caller calls Answered
// for each.
func (l *Ledger) Keepable(s *Source) (hs []*Hold) {
	for _, h := range l.held {
		if h.Source == s && !h.lost && !h.leaseless && !h.left && !h.returning {
			h.extending = true
			hs = append(hs, h)
		}
	}
	return hs
}

// Answered records that the call that was to extend the lease of h has ended. It returns false
// if h was released meanwhile.
func (l *Ledger) Answered(h *Hold) (held bool) {
	h.extending = false
	return h.state != released
}

// Extended records that the lease of h does not end before until.
func (l *Ledger) Extended(h *Hold, until Moment) { h.until = max(h.until, until) }

// NotExtended records that the lease of h is lost. A Hold that is being acknowledged before its
// run is not concerned: if the broker has acknowledged it, it has no lease.
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
