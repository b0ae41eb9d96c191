package eventbus

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// IDs are UUIDs of version 7 with the right time, and unique among all makers.
func TestIDs(t *testing.T) {
	const each, makers = 1000, 4
	made := make([][]uuid.UUID, makers)
	before := time.Now()
	var wg sync.WaitGroup
	for i := range makers {
		wg.Go(func() {
			var s idSource
			for range each {
				made[i] = append(made[i], s.next(time.Now()))
			}
		})
	}
	wg.Wait()
	after := time.Now().Add(time.Second) // many IDs within a moment get later times
	seen, tails := map[uuid.UUID]bool{}, map[[8]byte]bool{}
	for _, ids := range made {
		last := ""
		for _, id := range ids {
			require.Equal(t, uuid.Version(7), id.Version())
			require.Equal(t, uuid.RFC4122, id.Variant())
			sec, nsec := id.Time().UnixTime()
			require.WithinRange(t, time.Unix(sec, nsec), before.Truncate(time.Millisecond), after)
			var text [uuidLen]byte
			encodeID(text[:], id)
			require.Equal(t, id.String(), string(text[:]))
			require.Greater(t, id.String(), last)
			last = id.String()
			require.False(t, seen[id])
			seen[id] = true
			require.False(t, tails[[8]byte(id[8:])], "the same random bytes")
			tails[[8]byte(id[8:])] = true
		}
	}
}

// A time has the same text as with package time.
func TestTimesAsText(t *testing.T) {
	var s second
	for _, at := range []time.Time{
		{},
		time.Unix(0, 0),
		time.Unix(1795273445, 0),
		time.Unix(1795273445, 1),
		time.Unix(1795273445, 120_000_000),
		time.Unix(1795273445, 999_999_999).In(time.FixedZone("here", 3600)),
		time.Unix(-1, 500),
		time.Date(10000, 1, 1, 0, 0, 0, 5, time.UTC),
		time.Date(-7, 1, 1, 0, 0, 0, 5, time.UTC),
		time.Unix(1795273445, 5),
	} {
		require.Equal(t, at.UTC().Format(time.RFC3339Nano), string(s.appendTime(nil, at)))
		require.Equal(t, at.UTC().Format(time.RFC3339Nano), string(s.appendTime(nil, at)), "again")
	}
}

func TestIDsOfOneMomentAscend(t *testing.T) {
	var s idSource
	now := time.Now()
	a, b := s.next(now), s.next(now)
	require.Less(t, a.String(), b.String())
}
