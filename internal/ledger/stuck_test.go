package ledger

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// When the only run is stuck, a spare worker may run, so the fetcher that waits for room is
// told.
func TestStuckRunMakesRoom(t *testing.T) {
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
