package groupstats

import "time"

// Slot is the time between two points of [Group].History.
const Slot = 10 * time.Second

const slots = 90 // of 15 minutes

// A trail is the memory of the rounds before about one group.
type trail struct {
	lags   [slots]int64 // a ring
	newest int64        // the number of the newest slot; 0: none
	filled int          // slots with a value, at most all

	oldest time.Time // when the oldest unsettled event of the last round was stored
	least  Count     // the fewest unsettled events since the oldest is the same
	since  time.Time // the last round with progress
	short  bool      // events were missing in the last round
	round  int       // the last round with the group
}

// note records the figures of a round. It returns for how long the group has made no progress, and
// whether events are missing in this round and in the one before.
//
// A group makes progress if its oldest event changes. Many events may be stored at the same moment, so
// it is progress too if the group has fewer unsettled events than ever since then. While an event is
// stuck and others come and go, there are no fewer than the fewest.
func (t *trail) note(now time.Time, s *Stats, short bool) (idle time.Duration, lost bool) {
	t.add(now, int64(s.Lag))
	waiting := s.unsettled()
	if !t.oldest.Equal(s.Oldest) || t.since.IsZero() || s.Oldest.IsZero() || waiting < t.least {
		t.oldest, t.least, t.since = s.Oldest, waiting, now
	}
	lost, t.short = t.short && short, short
	return now.Sub(t.since), lost
}

// add sets the lag of the slot of now. Slots without a round have -1.
func (t *trail) add(now time.Time, lag int64) {
	slot := now.UnixNano() / int64(Slot)
	if t.newest == 0 || slot-t.newest > slots {
		t.newest, t.filled = slot-1, 0
	}
	for ; t.newest < slot; t.newest++ {
		t.lags[(t.newest+1)%slots] = -1
		t.filled = min(t.filled+1, slots)
	}
	t.lags[t.newest%slots] = lag
}

// history returns the lags, the newest last.
func (t *trail) history() []int64 {
	all := make([]int64, 0, t.filled)
	for slot := t.newest - int64(t.filled) + 1; slot <= t.newest; slot++ {
		all = append(all, t.lags[slot%slots])
	}
	return all
}
