package groupstats_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/partition"
)

func TestFigures(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "audit")
		source := attach(t, m, "orders", "billing")
		publish(t, m, "orders", 5)
		_, err := source.Receive(t.Context(), 2, 0)
		require.NoError(t, err)
		publish(t, m, "logs", 1)
		bury(t, m, "orders.dlq", "billing", "timeout", 3)
		require.NoError(t, m.Pause(t.Context(), "orders", "audit", backend.Pause{By: "ann"}))

		s := groupstats.NewSampler(m, groupstats.Options{}).Look(t.Context())
		require.NoError(t, s.Err)
		require.Len(t, s.Topics, 3)
		billing := s.Topic("orders").Group("billing")
		require.Equal(t, []groupstats.Count{5, 3, 2, 0, 1}, []groupstats.Count{billing.Depth, billing.Lag, billing.InFlight, billing.Delayed, billing.Members})
		require.Equal(t, "3", billing.Dead.String())
		require.Equal(t, groupstats.OK, billing.Status)
		audit := s.Topic("orders").Group("audit")
		require.Equal(t, groupstats.Paused, audit.Status)
		require.Equal(t, "ann", audit.Pause.By)
		require.Equal(t, "0", audit.Dead.String(), "a letter belongs to the group that failed")
		require.Empty(t, s.Topic("logs").Groups)
		require.Equal(t, groupstats.Count(backend.Unknown), s.Topic("logs").Depth, "nobody counts the events of a topic without a group")
		require.Nil(t, s.Topic("nowhere"))
	})
}

// However many look, a round costs the same.
func TestManyLookersCostAsMuchAsOne(t *testing.T) {
	cost := func(lookers int) (calls int64) {
		inBubble(t, func(t *testing.T, m *meter) {
			for i := range 5 {
				attach(t, m, fmt.Sprint("topic", i), "g")
			}
			s := groupstats.NewSampler(m, groupstats.Options{})
			var all sync.WaitGroup
			for range lookers {
				all.Go(func() { watch(t, s, time.Minute) })
			}
			all.Wait()
			calls = m.calls.Load()
			require.LessOrEqual(t, m.most.Load(), int64(4), "calls at the same time")
		})
		return calls
	}
	one := cost(1)
	require.Greater(t, one, int64(30*6))
	require.Equal(t, one, cost(10))
}

// The sampler rests half a minute after the last look, with its goroutine, and wakes with the next.
func TestNobodyLooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		s := groupstats.NewSampler(m, groupstats.Options{})
		time.Sleep(time.Minute)
		require.Zero(t, m.calls.Load(), "nobody has looked yet")
		first := s.Look(t.Context())
		time.Sleep(35 * time.Second)
		calls := m.calls.Load()
		time.Sleep(time.Hour)
		require.Equal(t, calls, m.calls.Load())

		publish(t, m, "orders", 7)
		second := s.Look(t.Context())
		require.Equal(t, groupstats.Count(7), second.Topic("orders").Group("billing").Lag, "the stats after a rest are new")
		require.Greater(t, second.Taken.Sub(first.Taken), time.Hour)
	})
}

// The goroutine ends soon after the backend was closed, although somebody looks.
func TestTheBackendWasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(t)
		s := groupstats.NewSampler(m, groupstats.Options{})
		s.Look(t.Context())
		m.fail(backend.ErrClosed)
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, s.Look(t.Context()).Err, backend.ErrClosed)
	})
}

// Very many groups are asked about less often.
func TestCallsASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		for i := range 300 {
			attach(t, m, fmt.Sprint("topic", i/3), fmt.Sprint("group", i%3))
		}
		s := groupstats.NewSampler(m, groupstats.Options{})
		watch(t, s, 10*time.Minute)
		require.Less(t, float64(m.calls.Load())/600, 101.0, "calls a second")
		require.Greater(t, m.calls.Load(), int64(300*60), "and still often enough")
	})
}

// While the broker is away, the stats stay, with their time, and each Look answers.
func TestOutage(t *testing.T) {
	for _, err := range []error{fmt.Errorf("dial: %w", backend.ErrUnavailable), backend.ErrUnknownOutcome, backend.ErrClosed} {
		inBubble(t, func(t *testing.T, m *meter) {
			attach(t, m, "orders", "billing")
			publish(t, m, "orders", 2)
			s := groupstats.NewSampler(m, groupstats.Options{})
			before := watch(t, s, 4*time.Second)
			require.NoError(t, before.Err)
			m.fail(err)
			during := watch(t, s, 20*time.Second)
			require.ErrorIs(t, during.Err, err)
			require.Less(t, during.Taken.Sub(before.Taken), 5*time.Second)
			require.Equal(t, groupstats.Count(2), during.Topic("orders").Group("billing").Lag)
			m.fail(nil)
			after := watch(t, s, 5*time.Second)
			require.NoError(t, after.Err)
			require.Greater(t, after.Taken.Sub(before.Taken), 20*time.Second)
		})
	}
}

// A broker that hangs makes nobody wait for long.
func TestABrokerThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		s := groupstats.NewSampler(hanging{m}, groupstats.Options{})
		for range 10 {
			began := time.Now()
			s.Look(t.Context())
			require.LessOrEqual(t, time.Since(began), 1500*time.Millisecond)
			time.Sleep(time.Second)
		}
		require.ErrorIs(t, s.Look(t.Context()).Err, context.DeadlineExceeded)
	})
}

type hanging struct{ *meter }

func (hanging) Ping(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A slow server needs five seconds to list its topics.
type slow struct {
	*meter
	lists *atomic.Int64
}

func (s slow) Topics(ctx context.Context) ([]string, error) {
	s.lists.Add(1)
	select {
	case <-time.After(5 * time.Second):
		return s.meter.Topics(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A list that takes long is made less often, and the stats in between are as fresh as ever.
func TestASlowList(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		b := slow{m, &atomic.Int64{}}
		s := watch(t, groupstats.NewSampler(b, groupstats.Options{}), 7*time.Minute)
		require.NoError(t, s.Err)
		require.Less(t, time.Since(s.Taken), 5*time.Second)
		require.Equal(t, groupstats.OK, s.Topic("orders").Group("billing").Status)
		require.LessOrEqual(t, b.lists.Load(), int64(5))
	})
}

// One topic that cannot be read spoils only its own row.
type damaged struct{ *meter }

func (d damaged) Groups(ctx context.Context, topic string) ([]string, error) {
	if topic == "bad" {
		return nil, fmt.Errorf("no leader: %w", backend.ErrUnavailable)
	}
	return d.meter.Groups(ctx, topic)
}

func (d damaged) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	if group == "bad" {
		return backend.Stats{}, fmt.Errorf("secret groups: %w", backend.ErrDenied)
	}
	return d.meter.Stats(ctx, topic, group)
}

func TestOneTopicSpoilsItsOwnRow(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "bad", "g")
		attach(t, m, "good", "bad")
		attach(t, m, "good", "fine")
		s := watch(t, groupstats.NewSampler(damaged{m}, groupstats.Options{}), 30*time.Second)
		require.NoError(t, s.Err)
		require.Contains(t, s.Topic("bad").Err, "no leader")
		require.Equal(t, groupstats.Unknown, s.Topic("good").Group("bad").Status)
		require.Contains(t, s.Topic("good").Group("bad").Err, "denied")
		require.Equal(t, groupstats.OK, s.Topic("good").Group("fine").Status)
	})
}

// A lister can only list. Nothing that it cannot tell is 0.
type lister struct{ backend.Backend }

func (lister) Topics(context.Context) ([]string, error) { return []string{"orders", "orders.dlq"}, nil }

func (lister) Groups(_ context.Context, topic string) ([]string, error) {
	if topic == "orders" {
		return []string{"billing"}, nil
	}
	return nil, nil
}
func (lister) DeleteTopic(context.Context, string) error         { return errors.ErrUnsupported }
func (lister) DeleteGroup(context.Context, string, string) error { return errors.ErrUnsupported }
func (lister) ResetGroup(context.Context, string, string, backend.Start) error {
	return errors.ErrUnsupported
}

func TestABackendThatKnowsLittle(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *meter) {
		s := groupstats.NewSampler(lister{}, groupstats.Options{}).Look(t.Context())
		require.NoError(t, s.Err)
		g := s.Topic("orders").Group("billing")
		for _, c := range []groupstats.Count{g.Depth, g.Lag, g.InFlight, g.Delayed, g.Members} {
			require.False(t, c.Known())
		}
		require.False(t, g.Told)
		require.Equal(t, "unknown", g.Dead.String())
		require.Equal(t, []int64{-1}, g.History)
		require.Equal(t, groupstats.Unknown, g.Status)

		none := groupstats.NewSampler(struct{ backend.Backend }{}, groupstats.Options{}).Look(t.Context())
		require.ErrorContains(t, none.Err, "cannot list")
	})
}

func TestAStuckGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		source := attach(t, m, "orders", "billing")
		publish(t, m, "orders", 3)
		ds, err := source.Receive(t.Context(), 1, 0) // whose handler hangs
		require.NoError(t, err)
		s := groupstats.NewSampler(m, groupstats.Options{})
		status := func(d time.Duration) groupstats.Status { return watch(t, s, d).Topic("orders").Group("billing").Status }
		require.Equal(t, groupstats.OK, status(50*time.Second))
		require.Equal(t, groupstats.Behind, status(3*time.Minute))
		require.Equal(t, groupstats.Stuck, status(2*time.Minute))
		require.NoError(t, source.Ack(t.Context(), backend.Lend(ds)))
		require.Equal(t, groupstats.Behind, status(5*time.Second), "the group moves again")
		history := s.Look(t.Context()).Topic("orders").Group("billing").History
		require.GreaterOrEqual(t, len(history), 30)
		require.Equal(t, int64(2), history[len(history)-1])
	})
}

// Somebody removes an event that the group has not settled.
func TestALosingGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		source := attach(t, m, "orders", "billing")
		publish(t, m, "orders", 2)
		ds, err := source.Receive(t.Context(), 2, 0)
		require.NoError(t, err)
		s := groupstats.NewSampler(m, groupstats.Options{})
		require.Equal(t, groupstats.OK, watch(t, s, 5*time.Second).Topic("orders").Group("billing").Status)
		require.NoError(t, m.Remove(t.Context(), "orders", []string{ds[0].Position}))
		require.Equal(t, groupstats.Losing, watch(t, s, 5*time.Second).Topic("orders").Group("billing").Status)
	})
}

func TestPartitionsAreOneTopic(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		for i := range 4 {
			attach(t, m, partition.Topic("orders", i), "billing")
			publish(t, m, partition.Topic("orders", i), i)
		}
		for range 3 {
			attach(t, m, partition.OwnersTopic("orders"), "billing")
		}
		publish(t, m, partition.OwnersTopic("orders"), 4)
		publish(t, m, partition.NumberTopic("orders"), 1)
		publish(t, m, partition.MembersTopic("orders"), 3)
		attach(t, m, "orders.later.token", "movers")
		publish(t, m, "orders.later", 1)

		s := groupstats.NewSampler(m, groupstats.Options{}).Look(t.Context())
		require.Len(t, s.Topics, 1)
		orders := s.Topics[0]
		require.Equal(t, "orders", orders.Name)
		require.False(t, orders.Exists)
		require.Equal(t, []int{0, 1, 2, 3}, orders.Partitions)
		require.Len(t, orders.Inner, 5)
		require.Len(t, orders.Groups, 1)
		g := orders.Groups[0]
		require.Equal(t, groupstats.Count(6), g.Lag)
		require.Equal(t, groupstats.Count(3), g.Members, "a member of the group is one of the owners")
		require.Len(t, g.Parts, 4)
		require.Equal(t, groupstats.Count(3), g.Parts[3].Lag)
	})
}
