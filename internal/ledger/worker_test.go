package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// sliceOf returns the positions and keys in a worker's slice after messages with the given keys
// have arrived, when runs are short.
func sliceOf(t *testing.T, keys []string) (positions, taken []string) {
	m := newShared(t, Config{Concurrency: 1, MaxInFlight: 1000, MaxParked: 1000}, 1)
	m.average = 1
	ds := make([]backend.Delivery, len(keys))
	for i, key := range keys {
		ds[i] = backend.Delivery{Message: backend.Message{Key: key, Position: fmt.Sprintf("%05d", i)}, Attempt: 1}
	}
	m.Put(m.from[0], Receipt{Holds: m.Fill(m.from[0], ds), Asked: m.Now})
	hs, _ := m.Take(m.NewWorker())
	for _, h := range hs {
		positions, taken = append(positions, h.Delivery.Position), append(taken, h.Delivery.Key)
	}
	return positions, taken
}

// Messages of a few keys follow each other in a slice, in the order of their positions.
func TestSliceIsByPosition(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for n := range 100 {
		keys := make([]string, mostSlice)
		for i := range keys {
			keys[i] = fmt.Sprint(dice.IntN(n%20 + 1))
		}
		positions, _ := sliceOf(t, keys)
		require.True(t, slices.IsSorted(positions), "keys %v: %v", keys, positions)
	}
}

// A message that is ready comes before later messages that follow others with their key.
func TestSliceTakesReadyMessagesInTurn(t *testing.T) {
	_, taken := sliceOf(t, strings.Split("abcbacdea", "")) // five are ready
	require.Equal(t, strings.Split("abcba", ""), taken)
}

// Resize starts workers for Holds that are ready, ends idle workers, and lets others end their
// slices.
func TestResize(t *testing.T) {
	l := newShared(t, Config{Order: Unordered, Concurrency: 1, MaxInFlight: 100, MaxParked: 100, Single: true}, 1)
	l.put(0, 4)
	var workers []*Worker
	start := func() { // carries out Start and Wake until there are none left
		for l.Out.Start > 0 {
			l.Out.Start--
			w := l.NewWorker()
			workers = append(workers, w)
			hs, stay := l.Take(w)
			require.True(t, stay)
			require.Len(t, hs, 1)
		}
	}
	start()
	require.Len(t, workers, 1)
	l.Resize(3)
	start()
	require.Len(t, workers, 3, "two more began at once")

	l.Resize(1)
	require.Equal(t, 3, l.Stats().Running, "no run is cut")
	end := func(w *Worker) (hs []*Hold, stay bool) {
		i, ok := w.Begin(l.Now)
		require.True(t, ok)
		w.End(i, l.Now)
		w.Succeeded(1)
		return l.Take(w)
	}
	for _, w := range workers[1:] {
		_, stay := end(w)
		require.False(t, stay, "the workers that are too many end after their slices")
	}
	hs, stay := end(workers[0])
	require.True(t, stay)
	require.Len(t, hs, 1, "the last one goes on")
	l.Resize(4)
	require.Zero(t, l.Out.Start, "there is no work for more")
	_, stay = end(workers[0])
	require.True(t, stay)
	l.Resize(2)
	require.Empty(t, l.Out.Wake, "there is one worker")
}

// When the only run is stuck, a spare worker may run, so the waiting fetcher is woken.
func TestStuckRunWakesTheFetcher(t *testing.T) {
	l := New(Config{Order: ByKey, Concurrency: 1, MaxInFlight: 10, MaxParked: 160, Lease: time.Minute, Timeout: time.Second})
	s := &Source{CanDelay: true, CanExtend: true}
	l.Now = 1
	l.Add(s)
	require.Positive(t, l.Wanted(s))
	hs := l.Fill(s, []backend.Delivery{{Message: backend.Message{Position: "1", Key: "k"}, Attempt: 1}})
	l.Put(s, Receipt{Holds: hs, Asked: 1})
	w := l.NewWorker()
	taken, _ := l.Take(w)
	require.Len(t, taken, 1)
	_, ok := w.Begin(l.Now)
	require.True(t, ok)
	require.Zero(t, l.Wanted(s), "no worker is free")
	l.Out = Effects{}
	for l.Now = l.Next(); l.Now < Instant(10*time.Second); l.Now = l.Next() {
		l.Tick(l.Now)
	}
	kinds := func(k Kind) bool { return slices.ContainsFunc(l.Out.Rest, func(e Effect) bool { return e.Kind == k }) }
	require.True(t, kinds(Stuck))
	require.True(t, kinds(ReadMore))
}
