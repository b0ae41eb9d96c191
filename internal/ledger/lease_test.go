package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// While an Extend call refers to a Hold, the Hold isn't reused. Otherwise the caller of Extend
// would read it while it is being filled, and extend the lease of another message.
func TestNoOtherMessageUsesAHoldThatIsExtended(t *testing.T) {
	l := New(Config{Concurrency: 1, MaxInFlight: 10, MaxParked: 160, Lease: time.Minute})
	s := &Source{CanDelay: true, CanExtend: true}
	l.Now = 1
	l.Add(s)
	hold := func() *Hold {
		hs := l.Fill(s, []backend.Delivery{{Message: backend.Message{Position: "1"}, Attempt: 1}})
		l.Put(s, Receipt{Holds: hs, Asked: 1})
		return hs[0]
	}
	h := hold()
	require.Equal(t, []*Hold{h}, l.Extendable(s))
	l.Release(h, nil)
	require.NotSame(t, h, hold())
	require.False(t, l.Answered(h), "it is not held any more")

	h = hold()
	l.Extendable(s)
	require.True(t, l.Answered(h))
	l.Release(h, nil)
	require.Same(t, h, hold(), "no call refers to it")
}

// A worker that finds a Hold whose lease has expired, as after a freeze of the process, loses it
// and takes the Holds of other sources.
func TestExpiredBeforeItsAlarm(t *testing.T) {
	m := newShared(t, Config{Concurrency: 1, MaxInFlight: 1000, MaxParked: 1000, Batch: Batch{Size: 10}}, 2)
	m.arrives(0, "a", "1", false)
	m.Now = m.Now.Plus(30 * time.Second)
	m.arrives(1, "b", "1", false)
	m.Now = m.Now.Plus(31 * time.Second) // the lease of a has expired, but the alarm hasn't rung
	w := m.NewWorker()
	hs, stay := m.Take(w)
	require.True(t, stay)
	require.Len(t, hs, 1)
	require.Equal(t, "b", hs[0].Delivery.Key)
	require.Equal(t, 1, m.Stats().Held, "the other one is lost")
	m.arrives(0, "c", "2", false)
	require.Equal(t, 1, m.startable())
	require.Empty(t, m.check())
}
