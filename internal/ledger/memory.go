package ledger

import (
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A memo is what a source remembers about a message that it no longer holds or that it has given
// back before. A source keeps at most maxMemory memos, and evicts one to add another.
type memo struct {
	before string  // a lower position with no known message in between; "" if none is known
	times  uint8   // how often it was given back after a run
	hangs  uint16  // how many of its stuck runs have not returned
	until  Instant // until when it may be unsettled
	acked  Instant // when it was acknowledged after its lease; zero if it wasn't

	// attempt is the number of the attempt that starts with the receipt after the one the backend
	// counted as receipt. Some backends don't count at all; others count every receipt, even one
	// without a run. If attempt is 0, the backend's count is valid.
	attempt, receipt int
}

const maxMemory = 1 << 16

// due records when the message is due again. An hour later another member may well have settled it,
// and the memo is no longer of any use.
func (m *memo) due(at Instant) { m.until = max(m.until, at.Plus(hour)) }

// remember returns the memo of h, and creates it if there is none.
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

// Hanging returns how many stuck runs of the message are still going on in this member.
func (h *Hold) Hanging() uint16 {
	if h.Source.ledger.stuck == 0 {
		return 0
	}
	if m := h.Source.memory[h.Delivery.Position]; m != nil {
		return m.hangs
	}
	return 0
}

// forget drops the memo of a settled message.
func (s *Source) forget(position string) {
	if len(s.memory) > 0 {
		delete(s.memory, position)
	}
}

const hour = time.Hour

// attemptOf returns the number of the attempt, counting from 1, that starts with the receipt of d.
func (s *Source) attemptOf(d *backend.Delivery) int {
	m := s.memory[d.Position]
	switch {
	case m == nil || m.attempt == 0:
		return max(d.Attempt, 1)
	case d.Attempt == 1 && !d.Redelivered: // the topic or the group is new, or the group was reset
		m.attempt = 0
		return 1
	}
	if d.Attempt <= m.receipt { // the backend counts nothing, or refunded an attempt despite stating that it doesn't
		m.receipt = d.Attempt - 1
	}
	return m.attempt + d.Attempt - m.receipt - 1
}

// expect remembers that the next receipt of h starts the given attempt.
func (s *Source) expect(h *Hold, attempt int) {
	m := s.remember(h)
	m.attempt, m.receipt = attempt, h.Delivery.Attempt
}

// Failed remembers the number of a failed attempt if the backend doesn't count it.
func (l *Ledger) Failed(h *Hold) {
	if h.Attempt > h.Delivery.Attempt {
		h.Source.expect(h, h.Attempt+1)
	}
}

// ackedLate records that h was acknowledged after its lease had expired. A Receive that was called
// before the acknowledgement may still return the message, because the broker had made it due
// again. Such a delivery is not handled, and a Hold of it is dropped.
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
			m.until = 0 // the message is settled
		}
	}
}

// acknowledged reports whether the message at position, returned by a Receive that was called at
// asked, has been acknowledged since then.
func (s *Source) acknowledged(position string, asked Instant) bool {
	if len(s.late) == 0 {
		return false
	}
	m := s.memory[position]
	return m != nil && asked < m.acked
}

// forgetAcked drops the late acknowledgements made before asked, when a Receive was called. No
// later Receive can return their messages.
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

// ResumeAfter returns the position after which a recreated group must start to get every unsettled
// message that this member has seen; it may get some settled messages again, too. ResumeAfter
// returns the highest position received if all messages are settled, and "" if the very first
// message of the topic may be unsettled.
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
