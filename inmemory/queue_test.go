package inmemory

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is leased, delayed and taken out, in whatever order: what is left comes
// in the order it is due, and by offset where that is the same.
func TestQueueIsInOrder(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var q queue
		var in []*entry
		put := func(e *entry) {
			if random.IntN(4) == 0 {
				q.delay(e, moment(random.IntN(100)))
			} else {
				q.lease(e, moment(len(in)/3+random.IntN(2)*random.IntN(50)))
			}
			in = append(in, e)
		}
		for offset := range uint64(200) {
			put(&entry{offset: offset})
			if random.IntN(3) == 0 {
				i := random.IntN(len(in))
				e := in[i]
				q.remove(e)
				if in = slices.Delete(in, i, i+1); random.IntN(2) == 0 {
					put(e)
				}
			}
		}
		require.Equal(t, len(in), q.len, "seed %d", seed)
		slices.SortFunc(in, func(a, b *entry) int {
			if a.before(b) {
				return -1
			}
			return 1
		})
		for i, want := range in {
			got := q.first()
			require.Same(t, want, got, "seed %d, entry %d", seed, i)
			q.remove(got)
		}
		require.Nil(t, q.first(), "seed %d", seed)
		require.Zero(t, q.len, "seed %d", seed)
	}
}

// Leases of one length do not come into the heap, whatever else is delayed.
func TestLeasesAreListed(t *testing.T) {
	var q queue
	q.delay(&entry{offset: 1}, 1000)
	for offset := range uint64(10) {
		q.lease(&entry{offset: 2 + offset}, moment(offset/2))
	}
	require.Len(t, q.heap, 1)
}
