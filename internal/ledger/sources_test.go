package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// A shared is a ledger with several sources, like that of a subscription with many topics.
type shared struct {
	*testing.T
	*Ledger
	from []*Source
}

func newShared(t *testing.T, c Config, sources int) *shared {
	c.Lease = time.Minute
	m := &shared{T: t, Ledger: New(c)}
	m.Now = 1
	for range sources {
		s := &Source{CanDelay: true, CanExtend: true, Refunds: true}
		m.Add(s)
		m.from = append(m.from, s)
	}
	return m
}

// put adds n messages to a source, each with its own key.
func (m *shared) put(source, n int) {
	var ds []backend.Delivery
	for i := range n {
		at := fmt.Sprintf("%05d", i)
		ds = append(ds, backend.Delivery{Message: backend.Message{ID: fmt.Sprintf("%d-%d", source, i), Key: at, Position: at}, Attempt: 1})
	}
	m.Now++
	m.Put(m.from[source], Receipt{Holds: m.Fill(m.from[source], ds), Asked: m.Now})
}

// wakeups returns how many fetchers were woken since the last call.
func (m *shared) wakeups() (n int) {
	for _, e := range m.Out.Rest {
		if e.Kind == ReadMore {
			n++
		}
	}
	m.Out = Effects{}
	return n
}

// A worker takes the messages of all sources in turn, however many a source has.
func TestSourcesTakeTurns(t *testing.T) {
	m := newShared(t, Config{Concurrency: 1, MaxInFlight: 1000, Single: true}, 3)
	m.put(0, 500)
	m.put(1, 2)
	m.put(2, 1)
	w := m.NewWorker()
	var got []string
	for range 6 {
		hs, _ := m.Take(w)
		got = append(got, hs[0].Delivery.ID)
		i, _ := w.Begin(m.Now)
		w.End(i, m.Now)
		w.Succeeded(1)
	}
	require.Equal(t, []string{"0-0", "1-0", "2-0", "0-1", "1-1", "0-2"}, got)
}

// The messages that one Receive will probably return leave nothing for other topics to read. When
// that Receive ends, their fetchers are woken.
func TestSourcesShareCapacity(t *testing.T) {
	m := newShared(t, Config{Concurrency: 8, MaxInFlight: 1000}, 3)
	require.Equal(t, 8, m.Wanted(m.from[0]))
	m.Reserve(m.from[0], 6)
	require.Equal(t, 2, m.Wanted(m.from[1]))
	m.Reserve(m.from[1], 2)
	require.Zero(t, m.Wanted(m.from[2]))
	require.Equal(t, 8-2, m.Wanted(m.from[0]), "its own Receive takes no room from it")
	require.Zero(t, m.wakeups())
	m.Unreserve(m.from[1])
	require.Equal(t, 1, m.wakeups(), "the end of a Receive wakes the fetcher that waits")
	require.Equal(t, 2, m.Wanted(m.from[2]))
	m.put(0, 3)
	require.Equal(t, 5, m.Wanted(m.from[2]))
}

// Revoke gives back the messages of one source that haven't started, and no others. Messages of
// that source that are running are settled as before.
func TestRevokeConcernsOneSource(t *testing.T) {
	m := newShared(t, Config{Concurrency: 1, MaxInFlight: 1000, Single: true}, 2)
	m.put(0, 3)
	m.put(1, 3)
	w := m.NewWorker()
	hs, _ := m.Take(w)
	require.Equal(t, "0-0", hs[0].Delivery.ID)
	w.Begin(m.Now)
	m.Out = Effects{}
	m.Revoke(m.from[0])
	var back []string
	for _, e := range m.Out.Rest {
		require.Equal(t, GiveBack, e.Kind)
		back = append(back, e.Hold.Delivery.ID)
	}
	require.Equal(t, []string{"0-1", "0-2"}, back)
	require.Zero(t, m.Wanted(m.from[0]))
	w.End(0, m.Now)
	w.Succeeded(1)
	next, _ := m.Take(w)
	require.Equal(t, "1-0", next[0].Delivery.ID)
	require.ElementsMatch(t, m.from, m.HoldingSources())
}

// While messages are ready and few slots are free, fetchers wait, so that they read many messages
// at once. They are all woken when slots are no longer scarce.
func TestFewSlots(t *testing.T) {
	m := newShared(t, Config{Concurrency: 1, MaxInFlight: 100}, 3)
	m.average = 1
	w := m.NewWorker()
	m.put(0, 60)
	hs, _ := m.Take(w)
	require.Len(t, hs, 60)
	hs = slices.Clone(hs)
	w.Succeeded(60)
	m.Take(w)
	m.put(1, 20) // the acknowledgements of the others are under way
	m.Out = Effects{}
	require.Zero(t, m.Wanted(m.from[0]), "20 are ready, 20 slots are free")
	require.Zero(t, m.Wanted(m.from[2]))
	for i, h := range hs[:40] {
		m.Acked(h, m.Now)
		woken := 0
		if i == 3 { // a quarter of 99 slots is free
			woken = 2
		}
		require.Equal(t, woken, m.wakeups(), "%d slots are free", 21+i)
	}
	require.NotZero(t, m.Wanted(m.from[0]))
	require.NotZero(t, m.Wanted(m.from[2]))
}

// A parked message has no slot, even once it runs, so others can have it.
func TestUnparkedHasNoSlot(t *testing.T) {
	m := newShared(t, Config{Concurrency: 1, MaxInFlight: 100, MaxParked: 1600}, 2)
	m.average = 1
	ds := make([]backend.Delivery, 100)
	for i := range ds {
		ds[i] = backend.Delivery{Message: backend.Message{Key: "k", Position: fmt.Sprintf("%05d", i)}, Attempt: 1}
	}
	m.Put(m.from[0], Receipt{Holds: m.Fill(m.from[0], ds), Asked: m.Now}) // 26 have a slot
	m.put(1, 30)
	m.Take(m.NewWorker()) // some that were parked
	require.NotZero(t, m.Wanted(m.from[1]))
}

// With Total, messages that wait for an earlier one of their topic take nothing away from another
// topic.
func TestTotalOrderOfOthers(t *testing.T) {
	m := newShared(t, Config{Concurrency: 1, MaxInFlight: 100, MaxParked: 100, Order: Total}, 2)
	m.average = time.Hour
	m.from[1].FailKeys("") // it has a lane
	m.put(0, 5)
	hs, _ := m.Take(m.NewWorker())
	require.Len(t, hs, 1)
	require.Zero(t, m.Wanted(m.from[0]), "four wait")
	require.NotZero(t, m.Wanted(m.from[1]))
}
