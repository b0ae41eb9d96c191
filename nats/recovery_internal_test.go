package nats

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// A crashed server answers no acknowledgement of a forgotten delivery. The member waits in
// vain once, not for each. Only deliveries that are redelivered count as forgotten.
func TestForgottenIsFoundOutOnce(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.eachCrash(func(ds []backend.Delivery) bool {
		before := s.messages()
		forgotten := s.forgotten(ds)
		if len(forgotten) < 2 {
			return false
		}
		acks := uint64(len(ds) - len(forgotten))
		require.LessOrEqual(t, s.messages(), before+acks+10, "of each that is known an acknowledgement, a few questions, and what a busy machine adds")
		again := s.receive(len(forgotten), len(forgotten))
		require.Equal(t, forgotten, positions(again))
		require.NoError(t, s.ack(again))
		return true
	})
}

// A member learns of forgotten deliveries before the server redelivers them, so it
// acknowledges none that has a second delivery.
func TestForgottenIsFoundOutBeforeItComesAgain(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.eachCrash(func(ds []backend.Delivery) bool {
		again, err := s.member.Receive(t.Context(), len(ds), 0)
		require.NoError(t, err)
		again = slices.Clone(again)
		forgotten := s.forgotten(ds)
		if len(forgotten) == 0 {
			return false
		}
		require.Subset(t, positions(again), forgotten)
		require.Empty(t, s.forgotten(again))
		return true
	})
}

// Acknowledgements that arrived before the server redelivered forgotten messages are all
// sent again.
func TestAckComesBeforeItIsHandedOutAnew(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	member, err := s.Attach(t.Context(), s.member.config)
	require.NoError(t, err)
	other := member.(*source)
	s.eachCrash(func(ds []backend.Delivery) bool {
		last := ds[max(0, len(ds)-3):]
		acked := make(chan error, 1)
		go func() { acked <- s.ack(last) }()
		time.Sleep(200 * time.Millisecond) // a member waits a second at least for an answer
		select {
		case <-acked: // the server has forgotten nothing, or the member knew before
			return false
		default:
		}
		again, err := other.Receive(t.Context(), len(ds), 0)
		require.NoError(t, err)
		if err := <-acked; err != nil { // the machine was too busy: the member knew before
			require.ErrorIs(t, err, backend.ErrLeaseLost)
			return false
		}
		// Redelivered messages that are not acknowledged can be given back, and come
		// first.
		again = slices.DeleteFunc(slices.Clone(again), func(d backend.Delivery) bool {
			return !slices.Contains(positions(last), d.Position)
		})
		if len(again) < len(last) {
			return false
		}
		delayed := make([]backend.Delayed, len(again))
		for i := range again {
			delayed[i].Delivery = again[i]
		}
		require.NoError(t, other.Delay(t.Context(), delayed))
		next, err := other.Receive(t.Context(), len(ds), 0)
		require.NoError(t, err)
		for _, position := range positions(last) {
			require.NotContains(t, positions(next), position, "it is not acknowledged")
		}
		return true
	})
}

func TestEras(t *testing.T) {
	t.Parallel()
	var s source
	s.generation.Store(newGeneration())
	first := s.generation.Load()
	require.False(t, first.forgot(100))
	require.Same(t, first, s.nextGeneration())
	first.remembered.Store(100)
	require.False(t, first.forgot(100), "all of it is remembered")
	require.True(t, first.forgot(101))

	second := s.nextGeneration()
	second.remembered.Store(90)
	require.True(t, first.forgot(91), "the answer is about earlier eras too")
	require.False(t, first.forgot(90))
	require.True(t, second.forgot(91))
	third := s.nextGeneration()
	require.False(t, third.forgot(91), "it came after that")
	third.remembered.Store(200)
	require.True(t, first.forgot(91), "an older answer still counts")
	require.True(t, third.forgot(201))
	require.False(t, s.generation.Load().forgot(201))

	s.consumerDeleted()
	require.True(t, third.forgot(1))
	require.False(t, s.generation.Load().forgot(1))
}

// eachCrash crashes the server while a member receives, and calls f with the deliveries,
// until f returns true. The server writes its deliveries ten times a second, so which ones
// it forgets is chance.
func (s *fixture) eachCrash(f func(ds []backend.Delivery) bool) {
	for range 4 {
		s.publish(2000)
	}
	const crashes = 8
	for range crashes {
		time.AfterFunc(350*time.Millisecond, s.server.Kill)
		ds := s.receiveUntilLost()
		s.server.Run()
		require.Eventually(s, func() bool { return s.Ping(s.Context()) == nil }, 20*time.Second, 10*time.Millisecond)
		if f(ds) {
			return
		}
	}
	s.Fatalf("the server has forgotten nothing in %d crashes", crashes)
}

// receiveUntilLost receives two messages at a time until the connection is lost.
func (s *fixture) receiveUntilLost() (all []backend.Delivery) {
	for {
		ds, err := s.member.Receive(s.Context(), 2, 0)
		all = append(all, ds...)
		if err != nil {
			require.ErrorIs(s, err, backend.ErrUnavailable)
			return all
		}
		time.Sleep(4 * time.Millisecond)
	}
}

// forgotten acknowledges deliveries one by one, and returns the positions of the forgotten
// ones.
func (s *fixture) forgotten(ds []backend.Delivery) (all []string) {
	for i := range ds {
		if err := s.ack(ds[i : i+1]); err != nil {
			require.ErrorIs(s, err, errForgotten)
			all = append(all, ds[i].Position)
		}
	}
	return all
}

func (s *fixture) ack(ds []backend.Delivery) error {
	return s.member.Ack(s.Context(), backend.Lend(ds))
}

func positions(ds []backend.Delivery) (all []string) {
	for i := range ds {
		all = append(all, ds[i].Position)
	}
	return all
}

// state returns the state of a consumer that has made deliveries, of which some are pending.
func state(deliveries, pending uint64, waiting int) *jetstream.ConsumerInfo {
	c := &jetstream.ConsumerInfo{NumAckPending: int(pending), NumWaiting: waiting}
	c.Delivered.Consumer, c.Delivered.Stream = deliveries, 1000+deliveries
	return c
}

// newMember returns the tracker of a member that has received a number of deliveries and
// holds them.
func newMember(received uint64) *tracker {
	t := new(tracker)
	t.init(state(0, 0, 0))
	for i := uint64(1); i <= received; i++ {
		t.held.Add(1)
		t.arrived(deliveryMeta{delivered: 1, sequence: 1000 + i, number: i}, "")
	}
	return t
}

// A member is alone until there is a sign of another member, and again after aloneAfter.
func TestSignsOfAnotherMember(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sees func(*tracker)
		is   bool
	}{
		"none":                         {func(*tracker) {}, true},
		"lost deliveries":              {func(t *tracker) { t.compare(t.snapshot(), state(15, 15, 1), 1) }, true},
		"acknowledgements on the way":  {func(t *tracker) { t.compare(t.snapshot(), state(10, 3, 0), 1) }, true},
		"the next number":              {func(t *tracker) { t.arrived(deliveryMeta{1, 1011, 11}, "") }, true},
		"a recreated consumer":         {func(t *tracker) { t.arrived(deliveryMeta{1, 2000, 1}, "") }, true},
		"numbers that do not arrive":   {func(t *tracker) { t.arrived(deliveryMeta{1, 1012, 12}, "") }, false},
		"a waiting pull":               {func(t *tracker) { t.compare(t.snapshot(), state(10, 10, 2), 1) }, false},
		"a pending message":            {func(t *tracker) { t.compare(t.snapshot(), state(10, 11, 0), 1) }, false},
		"pending when it attached":     {func(t *tracker) { t.init(state(10, 1, 0)) }, false},
		"a pull when it attached":      {func(t *tracker) { t.init(state(10, 0, 1)) }, false},
		"the consumer was deleted":     {(*tracker).reset, false},
		"a sign that is calm long ago": {func(t *tracker) { t.lastSign = time.Now().Add(-aloneAfter - 1) }, true},
	} {
		m := newMember(10)
		c.sees(m)
		require.Equal(t, c.is, m.snapshot().alone, name)
	}
}

// Each message that the member holds, has given back or has recalled counts once.
func TestTallyCounts(t *testing.T) {
	t.Parallel()
	m := newMember(3)
	tok := &token{reply: "$JS.ACK.s.c.1.1003.3.0.0"}
	tok.until.Store(leaseClock.now() + int64(time.Hour))
	was := tok.until.Load()

	m.startDelay(tok, leaseClock.now()+int64(time.Minute))
	require.Equal(t, 3, m.snapshot().pending)
	m.endDelay(tok, 0, outcomeFailed)
	require.Equal(t, was, tok.until.Load(), "it was not sent")
	require.Equal(t, 3, m.snapshot().pending)

	m.startDelay(tok, leaseClock.now()+int64(time.Minute))
	m.endDelay(tok, 0, outcomeUncertain)
	require.True(t, tok.delayable())
	require.False(t, tok.held())
	require.Equal(t, []uint64{1003}, m.overdue(false))
	require.Equal(t, 3, m.snapshot().pending)

	m.recalled([]uint64{1003}, 2, 1004, 1010) // two of seven sequences are of the consumer
	require.EqualValues(t, untilGivenBack, tok.until.Load())
	require.Equal(t, 5, m.snapshot().pending)
	require.Len(t, m.overdue(true), 8)

	m.held.Add(1)
	m.arrived(deliveryMeta{2, 1003, 6}, "")
	m.held.Add(1)
	m.arrived(deliveryMeta{2, 1005, 7}, "")
	require.Equal(t, 5, m.snapshot().pending)
	m.held.Add(1)
	m.arrived(deliveryMeta{1, 1011, 8}, "")
	require.Equal(t, 5, m.snapshot().pending, "a new message comes after all that were recalled")
	require.Empty(t, m.overdue(true))

	again := &token{reply: "$JS.ACK.s.c.2.1005.7.0.0"}
	again.until.Store(1)
	again.ackUncertain.Store(true)
	require.Equal(t, 5, m.snapshot().pending, "it may be pending")
	m.settled(again)
	m.settled(again)
	m.settled(tok)
	require.Equal(t, 4, m.snapshot().pending)
}

// A clock counts the time for which the machine was suspended, and never goes back.
func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	for _, r := range []struct{ mono, wall, want time.Duration }{
		{1 * time.Second, 1 * time.Second, 1 * time.Second},
		{2 * time.Second, 2*time.Second + 400*time.Millisecond, 2 * time.Second}, // read with a pause
		{3 * time.Second, 3 * time.Second, 3 * time.Second},
		{4 * time.Second, 64 * time.Second, 64 * time.Second}, // suspended for a minute
		{5 * time.Second, 65 * time.Second, 65 * time.Second},
		{6 * time.Second, 56 * time.Second, 66 * time.Second}, // set back by ten seconds
		{7 * time.Second, 57 * time.Second, 67 * time.Second},
		{8 * time.Second, 78 * time.Second, 88 * time.Second}, // suspended for twenty seconds
	} {
		require.Equal(t, int64(r.want), c.read(int64(r.mono), int64(r.wall)), "%v", r)
	}
	before := leaseClock.now()
	require.GreaterOrEqual(t, leaseClock.now(), before)
}
