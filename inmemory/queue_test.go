package inmemory

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is leased, delayed, taken out and taken while time goes on: of all that is
// due the lowest offset is taken, and nothing that is not due.
func TestQueueIsInOrder(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var q queue
		var in []*entry
		due, now := map[*entry]moment{}, moment(0)
		put := func(e *entry) {
			put := q.lease
			if random.IntN(4) == 0 {
				put = q.delay
			}
			due[e] = now + moment(random.IntN(2)*random.IntN(100))
			put(e, due[e])
			in = append(in, e)
		}
		take := func() {
			var want *entry
			next := never
			for _, e := range in {
				next = min(next, due[e])
				if due[e] <= now && (want == nil || e.offset < want.offset) {
					want = e
				}
			}
			if got := q.next(); next > now {
				require.Equal(t, next, got, "seed %d", seed)
			} else {
				require.LessOrEqual(t, got, now, "seed %d", seed)
			}
			if got := q.take(1, now); want != nil {
				require.Equal(t, []*entry{want}, got, "seed %d, at %d", seed, now)
			} else {
				require.Empty(t, got, "seed %d, at %d", seed, now)
			}
			in = slices.DeleteFunc(in, func(e *entry) bool { return e == want })
		}
		for offset := range uint64(200) {
			put(&entry{offset: offset})
			switch random.IntN(4) {
			case 0:
				i := random.IntN(len(in))
				e := in[i]
				q.remove(e)
				if in = slices.Delete(in, i, i+1); random.IntN(2) == 0 {
					put(e)
				}
			case 1:
				take()
			case 2:
				now += moment(random.IntN(5))
			}
			require.Equal(t, len(in), q.len(), "seed %d", seed)
		}
		for now = never; len(in) > 0; {
			take()
		}
		require.Nil(t, q.take(1, now), "seed %d", seed)
	}
}

// Leases of one length do not come into the heap, whatever else is delayed.
func TestLeasesAreListed(t *testing.T) {
	var q queue
	q.delay(&entry{offset: 1}, 1000)
	for offset := range uint64(10) {
		q.lease(&entry{offset: 2 + offset}, moment(offset/2))
	}
	require.Len(t, q.waiting, 1)
}
