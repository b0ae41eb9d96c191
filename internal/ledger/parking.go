package ledger

import (
	"strings"
	"time"
)

// An overflow is the rest of a long lane, which this member gives back as it arrives because too
// many Holds are parked. All of it is due at the same time, and a Receive called after that brings
// it by position. Only a backend that promises this has overflows.
type overflow struct {
	first string // the lowest position given back
	due   Instant
	until Instant // when everything that was given back is certainly due
	calls int     // calls of Delay under way
	count int     // messages given back
}

// ahead reports whether messages of o may come after now.
func (o *overflow) ahead(now Instant) bool { return o.calls > 0 || o.until.Plus(grace) > now }

// perEvent delays the next overflow for each message of the one before it. Without the delay,
// reading them again and again would hold up messages of other keys.
const perEvent = 200 * time.Microsecond

// overflows gives back h, which has arrived, if it belongs to the overflow of its lane, or if no
// more Holds may be parked. While the first Hold of the lane runs for the first time, reading stops
// instead (see park), because the lane is about to move.
func (l *Ledger) overflows(h *Hold, n *lane) bool {
	s, o, p := h.Source, n.over, h.Delivery.Position
	count := 0
	if o != nil {
		if p <= o.first {
			return false
		}
		if count = o.count; o.calls == 0 && h.asked >= o.until {
			n.over, o = nil, nil // from here on messages come by position
		}
	}
	if o == nil {
		last := len(n.queue) - 1
		if !s.Refunds || n.head != nil && n.head.Attempt == 1 || !l.isCrowded() || last < 0 || p < n.queue[last].Delivery.Position {
			return false
		}
		wait := min(time.Second+time.Duration(count)*perEvent, maxRedeliveredWait)
		o = &overflow{first: strings.Clone(p), due: max(n.retry(), l.Now.Plus(wait))}
		s.cloneKey(n)
		n.over = o
	}
	o.count++
	o.calls++
	if o.due <= l.Now { // the next Receive waits for the answer, and then brings h late enough
		h.chases = true
		l.chasing++
	}
	h.over, h.state, h.lane, h.Due, h.returning = o, settling, nil, o.due, true
	l.do(Effect{Kind: GiveBack, Hold: h})
	return true
}

// park returns the slot of h to the limiter if too many waiting Holds have one, which leaves slots
// for messages that can run. h stays held, keeps its position in the queue, and gets no slot again.
func (l *Ledger) park(h *Hold) {
	if h.state != waiting || h.parked {
		return
	}
	share := max(l.MaxInFlight/4, 1)
	if l.blocked <= l.MaxInFlight/2 && (h.lane == nil || h.lane.withSlot <= share) {
		return
	}
	l.blocked--
	if h.lane != nil {
		h.lane.withSlot--
	}
	h.parked = true
	l.withoutSlot++
	l.countParked(h, 1)
	l.Out.Freed.Settled++ // its bytes are released with it
	if !l.crowded && l.isCrowded() && (!h.Source.Refunds || h.lane == nil || h.lane.head != nil && h.lane.head.Attempt == 1) {
		l.setCrowded(true)
	}
}

const maxParkedBytes = 48 << 20 // less than the default of SubscribeOptions.MaxBytes

// isCrowded reports whether no more Holds may be parked.
func (l *Ledger) isCrowded() bool {
	return l.parked >= l.MaxParked || l.parkedBytes >= maxParkedBytes
}

// countParked counts h as parked with n = 1, or as no longer parked with -1.
func (l *Ledger) countParked(h *Hold, n int) {
	l.parked += n
	h.Source.parked += n
	l.parkedBytes += int64(n) * int64(h.size)
}

// checkCrowded lets reading go on once more Holds may be parked, or none of s is parked.
func (l *Ledger) checkCrowded(s *Source) {
	switch {
	case l.crowded && !l.isCrowded():
		l.setCrowded(false)
	case l.crowded && s.parked == 0:
		l.wakeFetcher(s)
	}
}

func (l *Ledger) setCrowded(yes bool) {
	l.crowded = yes
	l.do(Effect{Kind: Crowded})
	l.wakeFetchers()
}
