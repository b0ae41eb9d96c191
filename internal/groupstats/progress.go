package groupstats

import "time"

// Slot is the time between two points of [Group].History.
const Slot = 10 * time.Second

const slots = 90 // of 15 minutes

// progress remembers the earlier rounds of one group: its lag over time, and when it last made progress.
type progress struct {
	lags   [slots]int64 // a ring
	newest int64        // the number of the newest slot; 0: none
	filled int          // slots with a value, at most all

	oldest time.Time // when the oldest unsettled event of the last round was stored
	least  Count     // the fewest unsettled events since oldest last changed
	since  time.Time // the last round with progress
	short  bool      // events were missing in the last round
	round  int       // the last round with the group
}

// record adds the stats of a round. It returns for how long the group has made no progress, and
// whether events are missing in this round and in the previous one.
//
// A group makes progress when its oldest event changes. Many events may have been stored at the same moment, so it also
// counts as progress when there are fewer unsettled events than ever since. While one event is stuck and others come and
// go, their number does not fall below that minimum.
func (p *progress) record(now time.Time, s *Stats, short bool) (idle time.Duration, lost bool) {
	p.add(now, int64(s.Lag))
	waiting := s.unsettled()
	if !p.oldest.Equal(s.Oldest) || p.since.IsZero() || s.Oldest.IsZero() || waiting < p.least {
		p.oldest, p.least, p.since = s.Oldest, waiting, now
	}
	lost, p.short = p.short && short, short
	return now.Sub(p.since), lost
}

// add sets the lag for the slot that contains now. Slots without a round hold -1.
func (p *progress) add(now time.Time, lag int64) {
	slot := now.UnixNano() / int64(Slot)
	if p.newest == 0 || slot-p.newest > slots {
		p.newest, p.filled = slot-1, 0
	}
	for ; p.newest < slot; p.newest++ {
		p.lags[(p.newest+1)%slots] = -1
		p.filled = min(p.filled+1, slots)
	}
	p.lags[p.newest%slots] = lag
}

// history returns the lags, the newest last.
func (p *progress) history() []int64 {
	all := make([]int64, 0, p.filled)
	for slot := p.newest - int64(p.filled) + 1; slot <= p.newest; slot++ {
		all = append(all, p.lags[slot%slots])
	}
	return all
}
