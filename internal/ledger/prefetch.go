package ledger

import (
	"slices"
	"time"
)

const (
	maxRead    = 512                    // the most messages in one Receive
	mostBarren = 9                      // how often the size of a Receive may double to get past many messages behind one with their key
	leastAhead = 5 * time.Millisecond   // least prefetch, in working time of all workers, so that reads are large
	mostAhead  = 100 * time.Millisecond // largest prefetch, in working time of all workers
)

// ReadTook records how long a Receive took that returned everything it asked for.
func (l *Ledger) ReadTook(took time.Duration) {
	if l.readTime == 0 {
		l.readTime = took
	}
	l.readTime += (took - l.readTime) / 8
}

// Wanted returns how many messages the fetcher of s may ask for. If it returns 0, an effect
// ReadMore follows later. To keep reads large, it returns 0 while plenty of Holds are ready or
// reserved, and while only a few slots are free.
func (l *Ledger) Wanted(s *Source) int {
	n := l.wanted(s)
	if waits := n == 0 && !s.revoked; waits != s.fetcherWaits {
		l.setWaiting(s, waits)
	}
	return n
}

func (l *Ledger) setWaiting(s *Source, waits bool) {
	if s.fetcherWaits = waits; waits {
		l.waitingFetchers = append(l.waitingFetchers, s)
	} else {
		l.waitingFetchers = slices.DeleteFunc(l.waitingFetchers, func(o *Source) bool { return o == s })
	}
}

// Reserve sets aside capacity for the n messages that a Receive of s asks for, until Put or
// Unreserve is called; other sources can read that many fewer. Reserve only for a Receive that will
// probably return that many. Without reservations, sources that share capacity could together
// receive a multiple of it.
func (l *Ledger) Reserve(s *Source, n int) {
	l.reserved, s.reserved = l.reserved+n-s.reserved, n
}

// Unreserve ends the reservation after a Receive that isn't followed by Put.
func (l *Ledger) Unreserve(s *Source) {
	if s.reserved > 0 {
		l.reserved, s.reserved = l.reserved-s.reserved, 0
		l.wakeFetchers()
	}
}

// wanted is like Wanted, but doesn't record that the fetcher waits. When a condition that made it
// return 0 clears, call wakeFetcher; otherwise the fetcher never wakes up.
func (l *Ledger) wanted(s *Source) int {
	if l.closed || s.revoked || l.crowded && s.parked > 0 && !s.takingOver || l.chasing > 0 {
		return 0
	}
	least := 0
	if s.takingOver { // the next Receive may end the takeover
		least = 1
		if s.slowly && s.counted {
			return least
		}
	}
	size := max(l.Batch.Size, 1)
	free := (l.Concurrency - l.working) * size
	asked := l.reserved - s.reserved
	has := l.startable() + asked
	if l.Order == Total && s.lanes[""] != nil { // no other message of s can run
		has, free = has+s.lanes[""].withSlot+s.parked, free+l.working
	}
	ahead := l.ahead(s)
	if has >= free && (has > ahead/2 || has > 0 && l.few(asked)) { // Take, Put, Unreserve and Release call wakeFetchers
		return least
	}
	return min(max(free+ahead-has, least)<<s.barren, maxRead)
}

// ahead returns how many messages may be prefetched: as many as the workers can start in the time
// of two Receives, but at least one per worker. It returns 0 if no run has been measured yet, or if
// leases can't be extended.
func (l *Ledger) ahead(s *Source) int {
	if l.average == 0 || !s.CanExtend {
		return 0
	}
	most := time.Duration(l.Concurrency) * mostAhead / l.average
	n := time.Duration(l.Concurrency) * min(2*max(l.readTime, leastAhead/2), mostAhead) / l.average
	size := l.Concurrency * max(l.Batch.Size, 1)
	return min(int(min(max(n, time.Duration(size)), most)), l.MaxInFlight)
}

// Apart reports whether s may be unable to read while other sources can.
func (l *Ledger) Apart(s *Source) bool {
	return l.Order == Total || l.crowded && s.parked > 0
}

// wakeFetcher wakes the fetcher of s if it is waiting and may read now.
func (l *Ledger) wakeFetcher(s *Source) {
	if s.fetcherWaits && l.wanted(s) > 0 {
		l.setWaiting(s, false)
		l.do(Effect{Kind: ReadMore, Source: s})
	}
}

// wakeFetchers wakes all fetchers that may read now.
func (l *Ledger) wakeFetchers() {
	if len(l.waitingFetchers) == 0 {
		return
	}
	l.waitingFetchers = slices.DeleteFunc(l.waitingFetchers, func(s *Source) bool {
		if l.wanted(s) == 0 {
			return false
		}
		s.fetcherWaits = false
		l.do(Effect{Kind: ReadMore, Source: s})
		return true
	})
}

// few reports whether only a few slots are free, apart from those reserved for asked messages.
func (l *Ledger) few(asked int) bool {
	slots := l.MaxInFlight - (len(l.held) - l.withoutSlot) - asked
	return slots < (l.MaxInFlight-l.Concurrency*max(l.Batch.Size, 1))/4 // of the slots that running handlers leave free
}
