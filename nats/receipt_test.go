package nats

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// A crashed server answers no acknowledgement of a forgotten delivery. The member waits in
// vain once, not for each. Only deliveries that are redelivered count as forgotten.
func TestForgottenIsFoundOutOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
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
	s := newStage(t)
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
	s := newStage(t)
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
func (s *stage) eachCrash(f func(ds []backend.Delivery) bool) {
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
func (s *stage) receiveUntilLost() (all []backend.Delivery) {
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
func (s *stage) forgotten(ds []backend.Delivery) (all []string) {
	for i := range ds {
		if err := s.ack(ds[i : i+1]); err != nil {
			require.ErrorIs(s, err, errForgotten)
			all = append(all, ds[i].Position)
		}
	}
	return all
}

func (s *stage) ack(ds []backend.Delivery) error {
	return s.member.Ack(s.Context(), backend.Lend(ds))
}

func positions(ds []backend.Delivery) (all []string) {
	for i := range ds {
		all = append(all, ds[i].Position)
	}
	return all
}
