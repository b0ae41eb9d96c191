package groupstats_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

func TestLetters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		bury(t, m, "orders.dlq", "billing", "timeout", 700)
		bury(t, m, "orders.dlq", "audit", "schema", 12)
		s := groupstats.NewSampler(m, groupstats.Options{})
		l := watch(t, s, 10*time.Second).Topic("orders.dlq").Letters
		require.Equal(t, "712", l.String())
		require.Len(t, l.Classes, 2)
		require.Equal(t, 700, l.Classes[0].N)
		require.Equal(t, groupstats.Kind{Topic: "orders", Group: "audit", Reason: "exhausted", ErrorClass: "schema"}, l.Classes[1].Kind)
		require.Equal(t, "no schema", l.Classes[1].Error)

		read := m.read.Load()
		bury(t, m, "orders.dlq", "audit", "schema", 1)
		l = watch(t, s, 4*time.Second).Topic("orders.dlq").Letters
		require.Equal(t, "713", l.String())
		require.Equal(t, read+1, m.read.Load(), "only the new letter is read")

		ms, err := m.Backend.Read(t.Context(), "orders.dlq", "", 100)
		require.NoError(t, err)
		var gone []string
		for i := range ms {
			gone = append(gone, ms[i].Position)
		}
		require.NoError(t, m.Remove(t.Context(), "orders.dlq", gone))
		l = watch(t, s, 75*time.Second).Topic("orders.dlq").Letters
		require.Equal(t, "613", l.String(), "letters that were removed are noticed within a minute or so")
	})
}

// A count that is under way says that there may be more, and so does one that has reached its bound.
func TestVeryManyLetters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		bury(t, m, "orders.dlq", "billing", "timeout", 100_300)
		s := groupstats.NewSampler(m, groupstats.Options{})
		first := s.Look(t.Context()).Topic("orders").Group("billing").Dead
		require.True(t, first.More)
		require.Greater(t, first.N, 0)
		require.LessOrEqual(t, m.read.Load(), int64(4000), "of one round")
		last := watch(t, s, 3*time.Minute).Topic("orders").Group("billing").Dead
		require.True(t, last.More)
		require.GreaterOrEqual(t, last.N, 100_000)
		require.Equal(t, fmt.Sprint(last.N, " or more"), last.String())
	})
}

func TestTooManyClasses(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		for i := range 300 {
			bury(t, m, "orders.dlq", "billing", fmt.Sprint("class", i), 1)
		}
		bury(t, m, "orders.dlq", "billing", strings.Repeat("x", 2000), 1)
		s := watch(t, groupstats.NewSampler(m, groupstats.Options{}), 10*time.Second)
		l := s.Topic("orders.dlq").Letters
		require.Equal(t, "301", l.String())
		require.Len(t, l.Classes, 201)
		require.Equal(t, groupstats.Kind{Reason: groupstats.Further}, l.Classes[0].Kind)
		require.Equal(t, 101, l.Classes[0].N)
		require.Equal(t, "200 or more", s.Topic("orders").Group("billing").Dead.String(), "the group of the others is not known")
	})
}

// The letters of a topic with another name are counted if somebody asks for them.
func TestWantedLetters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		bury(t, m, "graveyard", "billing", "timeout", 3)
		s := groupstats.NewSampler(m, groupstats.Options{})
		require.Nil(t, s.Look(t.Context()).Topic("graveyard").Letters)
		for i := range 16 {
			require.True(t, s.Want([]string{"graveyard", fmt.Sprint("other", i)}[min(i, 1)]))
		}
		require.False(t, s.Want("one too many"))
		require.Equal(t, "3", watch(t, s, 5*time.Second).Topic("graveyard").Letters.String())
		time.Sleep(time.Minute)
		require.True(t, s.Want("one too many"), "the others are no longer wanted")
	})
}

// After a change the last number stays until the letters are counted again, and says that it is old.
func TestCountAfterAChange(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		bury(t, m, "orders.dlq", "billing", "timeout", 20_000)
		s := groupstats.NewSampler(m, groupstats.Options{})
		dead := func(after time.Duration) string {
			last := watch(t, s, after).Topic("orders").Group("billing").Dead
			return last.String()
		}
		require.Equal(t, "20000", dead(time.Minute))
		ms, err := m.Backend.Read(t.Context(), "orders.dlq", backend.StartEarliest, 1)
		require.NoError(t, err)
		require.NoError(t, m.Backend.Remove(t.Context(), "orders.dlq", []string{ms[0].Position}))
		s.Changed("orders.dlq")
		require.Equal(t, "about 20000", dead(5*time.Second))
		s.Changed("orders.dlq")
		require.Equal(t, "about 20000", dead(5*time.Second))
		require.Equal(t, "19999", dead(time.Minute))
	})
}
