package ledger

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

func (m *shared) arrives(source int, key, position string, again bool) {
	ds := []backend.Delivery{{Message: backend.Message{ID: key + position, Key: key, Position: position}, Attempt: 1, Redelivered: again}}
	m.Put(m.from[source], Receipt{Holds: m.Fill(m.from[source], ds), Asked: m.Now})
}

// A source in a takeover reads even if all workers are busy, and its messages start only when
// Receives have waited and returned nothing more.
func TestTakeoverWithBusyWorkers(t *testing.T) {
	m := newShared(t, Config{Concurrency: 1, MaxInFlight: 1000, MaxParked: 16000, Single: true}, 1)
	s := &Source{CanDelay: true, CanExtend: true, Exclusive: true}
	m.Add(s)
	m.TakeOver(s)
	m.from = append(m.from, s)
	m.put(0, 1) // takes the only worker
	w := m.NewWorker()
	hs, _ := m.Take(w)
	require.Len(t, hs, 1)
	m.Now++
	m.arrives(1, "k", "2", true)
	m.Now = m.Now.Plus(time.Second)
	m.Tick(m.Now)
	require.True(t, s.TakingOver(), "no Receive has waited")
	require.Positive(t, m.Wanted(s), "a Receive has to end the gathering")
	m.Waited(s, TakeoverWait/2)
	m.arrives(1, "k", "1", true)
	m.Waited(s, TakeoverWait/2)
	require.True(t, s.TakingOver(), "one has come meanwhile")
	m.Waited(s, TakeoverWait/2)
	require.False(t, s.TakingOver())
	_, ok := w.Begin(m.Now)
	require.True(t, ok)
	w.End(0, m.Now)
	w.Succeeded(1)
	hs, _ = m.Take(w)
	require.Len(t, hs, 1)
	require.Equal(t, "1", hs[0].Delivery.Position)
}

// If no Receive can end because the messages use up all bytes of the limiter, they start after a
// while.
func TestTakeoverWithoutReceives(t *testing.T) {
	m := newShared(t, Config{Concurrency: 1, MaxInFlight: 1000, MaxParked: 16000, Single: true}, 0)
	s := &Source{CanDelay: true, CanExtend: true, Exclusive: true}
	m.Add(s)
	m.TakeOver(s)
	m.from = append(m.from, s)
	m.arrives(0, "k", "1", true)
	w := m.NewWorker()
	hs, _ := m.Take(w)
	require.Empty(t, hs)
	m.Now = m.Now.Plus(takeoverIdle)
	m.Tick(m.Now)
	hs, _ = m.Take(w)
	require.Len(t, hs, 1)
}

// takingOver returns a Ledger with a source in a takeover, and a function that delivers the message
// at a position.
func takingOver(t *testing.T) (m *shared, s *Source, arrives func(key, position string, again bool)) {
	m = newShared(t, Config{Concurrency: 2, MaxInFlight: 1000, MaxParked: 16000}, 0)
	s = &Source{CanDelay: true, CanExtend: true, Exclusive: true}
	m.Add(s)
	m.TakeOver(s)
	m.from = append(m.from, s)
	return m, s, func(key, position string, again bool) {
		m.Now++
		m.arrives(0, key, position, again)
	}
}

// If the broker reports how many messages are outstanding, the takeover ends with the last of these
// messages, and neither with a new message nor with a Receive that waited in vain.
func TestTakeoverByCount(t *testing.T) {
	m, s, arrives := takingOver(t)
	m.Outstanding(s, 2)
	arrives("k", "3", false)
	m.Waited(s, 2*TakeoverWait)
	m.Outstanding(s, 3)
	arrives("k", "1", true)
	m.Outstanding(s, 3)
	require.True(t, s.TakingOver())
	w := m.NewWorker()
	hs, _ := m.Take(w)
	require.Empty(t, hs)
	arrives("k", "2", true)
	m.Outstanding(s, 3)
	require.False(t, s.TakingOver())
	hs, _ = m.Take(w)
	require.Len(t, hs, 1)
	require.Equal(t, "1", hs[0].Delivery.Position)
}

// A group without outstanding messages has no takeover.
func TestTakeoverNothing(t *testing.T) {
	m, s, arrives := takingOver(t)
	m.Outstanding(s, 0)
	require.False(t, s.TakingOver())
	arrives("k", "1", false)
	hs, _ := m.Take(m.NewWorker())
	require.Len(t, hs, 1)
}

// After a new message the source reads slowly until a Receive returns none, which keeps new
// messages from taking the slots of the outstanding ones.
func TestTakeoverReadsSlowly(t *testing.T) {
	m, s, arrives := takingOver(t)
	m.Outstanding(s, 1)
	arrives("a", "2", false)
	require.Equal(t, 1, m.Wanted(s))
	m.Waited(s, time.Millisecond)
	require.Greater(t, m.Wanted(s), 1)
	arrives("b", "3", false)
	arrives("c", "1", true)
	require.Greater(t, m.Wanted(s), 1, "there may be more of them")
}

// Messages without a key run during the takeover. One that is acknowledged doesn't count as
// outstanding; one that is running does.
func TestTakeoverWhileOthersRun(t *testing.T) {
	m, s, arrives := takingOver(t)
	m.Outstanding(s, 1)
	arrives("", "2", false)
	arrives("", "3", false)
	w := m.NewWorker()
	hs, _ := m.Take(w)
	require.Len(t, hs, 1)
	m.Outstanding(s, 3)
	require.True(t, s.TakingOver(), "one of three is not here")
	_, ok := w.Begin(m.Now)
	require.True(t, ok)
	w.End(0, m.Now)
	w.Succeeded(1)
	m.Take(w)
	m.Outstanding(s, 2) // according to a count made after the acknowledgement
	require.True(t, s.TakingOver(), "one of two is not here")
	arrives("k", "1", true)
	m.Outstanding(s, 2)
	require.False(t, s.TakingOver())
}

// A message that waits for a retry without a member is outstanding, too. Others wait for it no
// longer than a lease. If the broker stops reporting the count, a new message ends the takeover as
// before.
func TestTakeoverIsBounded(t *testing.T) {
	m, s, arrives := takingOver(t)
	began := m.Now
	m.Outstanding(s, 1)
	arrives("k", "1", false)
	for s.TakingOver() {
		m.Now = m.Now.Plus(time.Second)
		m.Tick(m.Now)
		m.Outstanding(s, 2)
	}
	require.Equal(t, m.Lease+time.Second, time.Duration(m.Now-began).Truncate(time.Second), "a lease and TakeoverWait")

	m, s, arrives = takingOver(t)
	m.Outstanding(s, 1)
	s.Uncounted()
	arrives("k", "1", false)
	require.False(t, s.TakingOver())
}

// A takeover lasts longer than a lease while outstanding messages keep arriving, however many there
// are. It ends by itself if no Receive ends it.
func TestTakeoverManyMessages(t *testing.T) {
	m, s, arrives := takingOver(t)
	for i := range 40 {
		m.Outstanding(s, 100)
		m.Now = m.Now.Plus(m.Lease / 20)
		m.Tick(m.Now)
		require.True(t, s.TakingOver(), "message %d", i)
		arrives("k", strconv.Itoa(100+i), true)
	}

	m, s, _ = takingOver(t)
	m.Now = m.Now.Plus(m.Lease + TakeoverWait)
	m.Tick(m.Now)
	require.False(t, s.TakingOver())
}
