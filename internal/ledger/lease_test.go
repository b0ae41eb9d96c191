package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// While a call of Extend refers to a Hold, no other message uses it. The caller of Extend
// would read it while it is filled, and extend the lease of another message.
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
