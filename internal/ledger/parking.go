package ledger

import (
	"strings"
	"time"
)

// An overflow is the tail of a long lane that this member gives back as it arrives, because too
// many Holds are parked. All of it becomes due at the same time, and a Receive called after that
// returns it in the order of positions. Only backends that promise this get overflows.
type overflow struct {
	first string // the lowest position that was given back
	due   Instant
	until Instant // when everything that was given back is certainly due
	calls int     // Delay calls under way
	count int     // how many messages were given back
}

// ahead reports whether messages of o may still arrive after now.
func (o *overflow) ahead(now Instant) bool { return o.calls > 0 || o.until.Plus(grace) > now }

// perEvent is how long each message of an overflow delays the next overflow. Without that delay,
// reading the same messages over and over would hold up messages with other keys.
const perEvent = 200 * time.Microsecond

// overflows gives back h, which has just arrived, if it belongs to the overflow of its lane or if
// no more Holds may be parked. It reports whether it did. While the first Hold of the lane is on
// its first run, the ledger stops reading instead (see park), because the lane is about to move.
func (l *Ledger) overflows(h *Hold, n *lane) bool {
	s, o, p := h.Source, n.over, h.Delivery.Position
	count := 0
	if o != nil {
		if p <= o.first {
			return false
		}
		if count = o.count; o.calls == 0 && h.asked >= o.until {
			n.over, o = nil, nil // from here on, messages arrive in the order of positions
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
	if o.due <= l.Now { // the next Receive waits for the answer, so it returns h late enough
		h.chases = true
		l.chasing++
	}
	h.over, h.state, h.lane, h.Due, h.returning = o, settling, nil, o.due, true
	l.do(Effect{Kind: GiveBack, Hold: h})
	return true
}

// park returns the slot of h to the limiter if too many waiting Holds have one, which leaves slots
// for messages that can run. h stays held and keeps its position in the queue, but never gets a
// slot again.
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
	l.Out.Freed.Settled++ // releases its bytes as well
	if !l.crowded && l.isCrowded() && (!h.Source.Refunds || h.lane == nil || h.lane.head != nil && h.lane.head.Attempt == 1) {
		l.setCrowded(true)
	}
}

const maxParkedBytes = 48 << 20 // less than the default of SubscribeOptions.MaxBytes

// isCrowded reports whether too many Holds are parked to read any more messages.
func (l *Ledger) isCrowded() bool {
	return l.parked >= l.MaxParked || l.parkedBytes >= maxParkedBytes
}

// countParked counts h as parked if n is 1, and as no longer parked if n is -1.
func (l *Ledger) countParked(h *Hold, n int) {
	l.parked += n
	h.Source.parked += n
	l.parkedBytes += int64(n) * int64(h.size)
}

// checkCrowded resumes reading once more Holds may be parked, or once s has none parked.
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
