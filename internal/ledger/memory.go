package ledger

import (
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A memo is what a source remembers about a message that it does not hold, or has given back
// before. A source keeps at most maxMemory of them, and forgets one to add another.
type memo struct {
	before string  // a position before it, at which no other message is known between them; "": not known
	times  uint8   // how often it was given back after a run
	hangs  uint16  // its stuck runs that have not returned
	until  Instant // when to forget that it may be unsettled
	acked  Instant // when it was acknowledged after its lease; zero: it was not

	// attempt is the number of the attempt that begins with the receipt after the one that the
	// backend counted as receipt. Some backends count nothing, and others count each receipt,
	// also one without a run. attempt 0: the backend's count is valid.
	attempt, receipt int
}

const maxMemory = 1 << 16

// due records when the message is due again. By an hour later another member may well have settled
// it, so the memo is of no use any more.
func (m *memo) due(at Instant) { m.until = max(m.until, at.Plus(hour)) }

// remember returns the memo of h, made if there is none.
func (s *Source) remember(h *Hold) *memo {
	p := h.Delivery.Position
	if m := s.memory[p]; m != nil {
		return m
	}
	for other := range s.memory {
		if len(s.memory) < maxMemory {
			break
		}
		delete(s.memory, other)
	}
	m := &memo{before: strings.Clone(h.before), until: h.came.Plus(hour)}
	s.memory[strings.Clone(p)] = m
	return m
}

// Hanging returns how many stuck runs of the message in this member have not returned.
func (h *Hold) Hanging() uint16 {
	if h.Source.ledger.stuck == 0 {
		return 0
	}
	if m := h.Source.memory[h.Delivery.Position]; m != nil {
		return m.hangs
	}
	return 0
}

// forget drops the memo of a message that is settled.
func (s *Source) forget(position string) {
	if len(s.memory) > 0 {
		delete(s.memory, position)
	}
}

const hour = time.Hour

// attemptOf returns the number of the attempt that begins with the receipt of d, from 1.
func (s *Source) attemptOf(d *backend.Delivery) int {
	m := s.memory[d.Position]
	switch {
	case m == nil || m.attempt == 0:
		return max(d.Attempt, 1)
	case d.Attempt == 1 && !d.Redelivered: // topic or group are new, or the group was reset
		m.attempt = 0
		return 1
	}
	if d.Attempt <= m.receipt { // the backend counts nothing, or has refunded although it states that it does not
		m.receipt = d.Attempt - 1
	}
	return m.attempt + d.Attempt - m.receipt - 1
}

// expect remembers that the next receipt of h begins the given attempt.
func (s *Source) expect(h *Hold, attempt int) {
	m := s.remember(h)
	m.attempt, m.receipt = attempt, h.Delivery.Attempt
}

// Failed remembers the number of an attempt that has failed, if the backend misses it.
func (l *Ledger) Failed(h *Hold) {
	if h.Attempt > h.Delivery.Attempt {
		h.Source.expect(h, h.Attempt+1)
	}
}

// ackedLate records that h was acknowledged after its lease. A Receive that was called before
// may still bring the message, because the broker delivered it again. Such a delivery is not
// handled, and a Hold of it is dropped.
func (s *Source) ackedLate(h *Hold) {
	l := s.ledger
	m := s.remember(h)
	m.acked = l.Now
	position := strings.Clone(h.Delivery.Position)
	s.late = append(s.late, position)
	for _, other := range slices.Clone(l.held) {
		if other == h || other.Source != s || other.Delivery.Position != position {
			continue
		}
		if l.Lose(other, ErrAckedBefore); other.state == released {
			m.until = 0 // it is settled
		}
	}
}

// acknowledged reports whether a Receive that was called at asked has brought a message that has
// been acknowledged since.
func (s *Source) acknowledged(position string, asked Instant) bool {
	if len(s.late) == 0 {
		return false
	}
	m := s.memory[position]
	return m != nil && asked < m.acked
}

// forgetAcked forgets the late acknowledgements that no later Receive can meet, because a Receive
// was called after them, at asked.
func (s *Source) forgetAcked(asked Instant) {
	s.late = slices.DeleteFunc(s.late, func(p string) bool {
		m := s.memory[p]
		gone := m == nil || m.acked <= asked
		if gone && m != nil && m.acked != 0 {
			delete(s.memory, p)
		}
		return gone
	})
}

// ResumeAfter returns the position after which a group that is created again has to start, so that
// it gets every unsettled message that this member has seen. Settled messages may come again, too.
// It returns the highest position received if all are settled, and "" if the very first message of
// the topic may be unsettled.
func (l *Ledger) ResumeAfter(s *Source) string {
	lowest := ""
	for _, h := range l.held {
		if p := h.Delivery.Position; h.Source == s && (lowest == "" || p < lowest) {
			lowest = p
		}
	}
	for p, m := range s.memory {
		if m.until > l.Now && m.acked == 0 && (lowest == "" || p < lowest) {
			lowest = p
		}
	}
	if lowest == "" || lowest > s.last {
		return s.last
	}
	after := ""
	earlier := func(p string) {
		if p < lowest {
			after = max(after, p)
		}
	}
	for _, h := range l.held {
		if h.Source == s {
			earlier(h.before)
			earlier(h.Delivery.Position)
		}
	}
	for _, m := range s.memory {
		if m.until > l.Now {
			earlier(m.before)
		}
	}
	return after
}
