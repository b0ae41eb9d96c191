package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// sliceOf returns the positions and the keys of the slice of a worker, when messages of the given keys have arrived
// and runs are short.
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

// A message that is ready comes before later messages that follow others of their key.
func TestSliceTakesReadyMessagesInTurn(t *testing.T) {
	_, taken := sliceOf(t, strings.Split("abcbacdea", "")) // five are ready
	require.Equal(t, strings.Split("abcba", ""), taken)
}
