package bus_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// IDs are UUIDs of version 7 with the right time, and unique among all publishers.
func TestIDs(t *testing.T) {
	const calls, each, publishers = 10, 100, 4
	bus := eventbustest.New(t)
	made, errs := make([][]eventbus.Receipt, publishers), make([]error, publishers)
	events := slices.Repeat([]*eventbus.Event{{}}, each)
	before := time.Now()
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for range calls {
				receipts, err := bus.PublishReceipts(t.Context(), "orders", events...)
				made[i] = append(made[i], receipts...)
				if err != nil {
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	after := time.Now().Add(time.Second) // many IDs within a moment get later times
	require.Equal(t, make([]error, publishers), errs)
	seen, tails := map[uuid.UUID]bool{}, map[[8]byte]bool{}
	for _, receipts := range made {
		require.Len(t, receipts, calls*each)
		last := ""
		for _, r := range receipts {
			id, err := uuid.Parse(r.ID)
			require.NoError(t, err)
			require.Equal(t, id.String(), r.ID)
			require.Equal(t, uuid.Version(7), id.Version())
			require.Equal(t, uuid.RFC4122, id.Variant())
			sec, nsec := id.Time().UnixTime()
			require.WithinRange(t, time.Unix(sec, nsec), before.Truncate(time.Millisecond), after)
			require.Greater(t, r.ID, last)
			last = r.ID
			require.False(t, seen[id])
			seen[id] = true
			require.False(t, tails[[8]byte(id[8:])], "the same random bytes")
			tails[[8]byte(id[8:])] = true
		}
	}
}

// A stored time has the same text as with package time.
func TestTimesAsText(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	bus := eventbustest.On(t, b, eventbus.Options{})
	times := []time.Time{
		time.Unix(0, 0),
		time.Unix(1795273445, 0),
		time.Unix(1795273445, 1),
		time.Unix(1795273445, 120_000_000),
		time.Unix(1795273445, 999_999_999).In(time.FixedZone("here", 3600)),
		time.Unix(-1, 500),
		time.Date(9999, 12, 31, 23, 59, 59, 5, time.UTC),
		time.Date(0, 1, 1, 0, 0, 0, 5, time.UTC),
		time.Unix(1795273445, 5),
	}
	var events []*eventbus.Event
	var want, got []string
	for _, at := range times {
		events = append(events, &eventbus.Event{Time: at}, &eventbus.Event{Time: at}) // again
		text := at.UTC().Format(time.RFC3339Nano)
		want = append(want, text, text)
	}
	require.NoError(t, bus.Publish(t.Context(), "orders", events...))
	stored, err := b.Read(t.Context(), "orders", "", len(events)+1)
	require.NoError(t, err)
	for _, m := range stored {
		got = append(got, m.Headers.Get("ce-time"))
	}
	require.Equal(t, want, got)
	require.NoError(t, bus.Shutdown(t.Context()))
}

func TestIDsOfOneMomentAscend(t *testing.T) {
	bus := eventbustest.New(t)
	receipts, err := bus.PublishReceipts(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{})
	require.NoError(t, err)
	require.Equal(t, receipts[0].Time, receipts[1].Time)
	require.Less(t, receipts[0].ID, receipts[1].ID)
}
