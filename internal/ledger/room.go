package ledger

import (
	"slices"
	"time"
)

// Read notes how long a Receive took that brought all it had asked for.
func (l *Ledger) Read(took time.Duration) {
	if l.reading == 0 {
		l.reading = took
	}
	l.reading += (took - l.reading) / 8
}

// Wanted returns how many messages the fetcher of s may ask for. If it is 0, an effect Room
// follows. While many Holds are ready or asked for, or some and few places are free, it is 0, so that reads are large.
func (l *Ledger) Wanted(s *Source) int {
	n := l.wanted(s)
	if waits := n == 0 && !s.revoked; waits != s.waits {
		l.await(s, waits)
	}
	return n
}

func (l *Ledger) await(s *Source, waits bool) {
	if s.waits = waits; waits {
		l.waiting = append(l.waiting, s)
	} else {
		l.waiting = slices.DeleteFunc(l.waiting, func(o *Source) bool { return o == s })
	}
}

// Asking counts the n messages that a Receive of s asks for against the room of other sources,
// until Put or Unread. The caller counts a Receive that will probably bring as many. Otherwise
// sources that share room would together receive many times of it.
func (l *Ledger) Asking(s *Source, n int) {
	l.asked, s.asked = l.asked+n-s.asked, n
}

// Unread ends Asking after a Receive without a Put.
func (l *Ledger) Unread(s *Source) {
	if s.asked > 0 {
		l.asked, s.asked = l.asked-s.asked, 0
		l.roomForAll()
	}
}

// wanted is Wanted without a note that the fetcher waits. Each condition under which it returns 0
// needs a call of room when the condition ends, or the fetcher sleeps for ever.
func (l *Ledger) wanted(s *Source) int {
	if l.closed || s.revoked || l.crowded && s.parked > 0 && !s.gathers || l.chasing > 0 {
		return 0
	}
	least := 0
	if s.gathers { // the next Receive may end it
		least = 1
		if s.slowly && s.counted {
			return least
		}
	}
	size := max(l.Batch.Size, 1)
	free := (l.Concurrency - l.working) * size
	asked := l.asked - s.asked
	has := l.startable() + asked
	if l.Order == Total && s.lanes[""] != nil { // no other message of s can run
		has, free = has+s.lanes[""].placed+s.parked, free+l.working
	}
	ahead := l.ahead(s)
	if has >= free && (has > ahead/2 || has > 0 && l.few(asked)) { // Take, Put, Unread and Release call roomForAll
		return least
	}
	return min(max(free+ahead-has, least)<<s.barren, maxRead)
}

// ahead returns how many messages may be prefetched: as many as the workers can start while
// two Receives go on, and at least one for each worker. It is 0 if no run was measured yet,
// or if leases cannot be extended.
func (l *Ledger) ahead(s *Source) int {
	if l.average == 0 || !s.CanExtend {
		return 0
	}
	most := time.Duration(l.Concurrency) * mostAhead / l.average
	n := time.Duration(l.Concurrency) * min(2*max(l.reading, leastAhead/2), mostAhead) / l.average
	size := l.Concurrency * max(l.Batch.Size, 1)
	return min(int(min(max(n, time.Duration(size)), most)), l.MaxInFlight)
}

// Apart reports whether there may be no room for s, but room for other sources.
func (l *Ledger) Apart(s *Source) bool {
	return l.Order == Total || l.crowded && s.parked > 0
}

// room wakes the fetcher of s if it waits for room and may read now.
func (l *Ledger) room(s *Source) {
	if s.waits && l.wanted(s) > 0 {
		l.await(s, false)
		l.do(Effect{Kind: Room, Source: s})
	}
}

// roomForAll wakes all fetchers that may read now.
func (l *Ledger) roomForAll() {
	if len(l.waiting) == 0 {
		return
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(s *Source) bool {
		if l.wanted(s) == 0 {
			return false
		}
		s.waits = false
		l.do(Effect{Kind: Room, Source: s})
		return true
	})
}
