package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Resize starts workers for Holds that are ready, ends idle workers, and lets others end their
// slices.
func TestResize(t *testing.T) {
	l := newShared(t, Config{Order: Unordered, Concurrency: 1, MaxInFlight: 100, MaxParked: 100, Single: true}, 1)
	l.put(0, 4)
	var workers []*Worker
	start := func() { // carries out Start and Wake, until there are none
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
