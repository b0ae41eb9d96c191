package service

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
)

// on runs a test of a service in a synctest bubble.
func on(t *testing.T, f func(t *testing.T, bus *eventbustest.Bus, s *Service)) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		s, err := New(bus, Options{})
		require.NoError(t, err)
		f(t, bus, s)
	})
}

// counting returns a handler that counts its runs.
func counting(n *atomic.Int64) eventbus.Handler {
	return func(context.Context, *eventbus.Delivery) error {
		n.Add(1)
		return nil
	}
}

func publish(t *testing.T, bus *eventbustest.Bus, topic string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		require.NoError(t, bus.Publish(t.Context(), topic, &eventbus.Event{ID: id}))
	}
}

// A group gets the events that are published after Register, although it starts later.
func TestEventsWaitForTheStart(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus, s *Service) {
		var early, late, batch, manual atomic.Int64
		latest := eventbus.SubscribeOptions{Start: eventbus.StartLatest}
		require.NoError(t, s.Register(t.Context(), "early", Group{Topic: "orders", Options: latest, Handler: counting(&early)}))
		require.NoError(t, s.Register(t.Context(), "batch", Group{Topic: "orders", Options: latest, Batch: func(_ context.Context, ds []*eventbus.Delivery) []error {
			batch.Add(int64(len(ds)))
			return nil
		}}))
		require.NoError(t, s.Register(t.Context(), "manual", Group{Topic: "orders", Options: latest, Manual: func(ctx context.Context, d *eventbus.ManualDelivery) error {
			manual.Add(1)
			return d.Ack(ctx)
		}}))
		publish(t, bus, "orders", "1")
		synctest.Wait()
		require.Zero(t, early.Load())
		require.Nil(t, s.Subscription("early"))
		require.NoError(t, s.Start(t.Context()))
		require.NoError(t, s.Start(t.Context()), "a second Start starts nothing again")

		require.NoError(t, s.Register(t.Context(), "late", Group{Topic: "orders", Options: latest, Handler: counting(&late)}))
		require.NotNil(t, s.Subscription("late"), "it starts at once")
		publish(t, bus, "orders", "2")
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.EqualValues(t, []int64{2, 2, 2, 1}, []int64{early.Load(), batch.Load(), manual.Load(), late.Load()})
		require.Equal(t, []string{"batch", "early", "late", "manual"}, s.Names())
		require.Len(t, bus.Subscriptions(), 4)
	})
}

// The partitions of a topic keep events for a group that was registered, too.
func TestEventsWaitInPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.NewWith(t, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 4}}})
		s, err := New(bus, Options{})
		require.NoError(t, err)
		var runs atomic.Int64
		require.NoError(t, s.Register(t.Context(), "g", Group{Topic: "orders", Options: eventbus.SubscribeOptions{Start: eventbus.StartLatest}, Handler: counting(&runs)}))
		for i := range 20 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Key: strconv.Itoa(i)}))
		}
		require.NoError(t, s.Start(t.Context()))
		time.Sleep(time.Minute)
		require.EqualValues(t, 20, runs.Load())
		require.Len(t, s.Subscription("g").Partitions(), 4)
		require.NoError(t, s.StopAll(t.Context()))
	})
}

// Two registrations with a topic and a group in common are refused, unless the program wants them.
func TestDuplicates(t *testing.T) {
	on(t, func(t *testing.T, _ *eventbustest.Bus, s *Service) {
		in := func(topic string, topics ...string) Group {
			return Group{Topic: topic, Options: eventbus.SubscribeOptions{Group: "g", Topics: topics}, Handler: succeed}
		}
		require.NoError(t, s.Register(t.Context(), "first", in("shop.orders")))
		for _, g := range []Group{in("shop.orders"), in("shop.*"), in("", "other", "shop.orders"), in("shop.>")} {
			require.ErrorContains(t, s.Register(t.Context(), "second", g), "set AllowDuplicate")
		}
		require.ErrorContains(t, s.Register(t.Context(), "first", in("other")), "is registered already")
		require.Equal(t, []string{"first"}, s.Names())

		require.NoError(t, s.Register(t.Context(), "other", in("shop.refunds")))
		again := in("shop.orders")
		again.AllowDuplicate = true
		require.NoError(t, s.Register(t.Context(), "again", again))
		for _, name := range []string{"each1", "each2"} {
			require.NoError(t, s.Register(t.Context(), name, Group{Topic: "t", Options: eventbus.SubscribeOptions{Group: eventbus.EachInstance}, Handler: succeed}))
		}
		require.NoError(t, s.Stop(t.Context(), "first"), "it has not started")
		require.NoError(t, s.Stop(t.Context(), "again"))
		require.NoError(t, s.Register(t.Context(), "first", in("shop.orders")), "the names are free again")
	})
}

// A refused group is not registered.
func TestRefused(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus, s *Service) {
		manual := func(context.Context, *eventbus.ManualDelivery) error { return nil }
		batch := func(context.Context, []*eventbus.Delivery) []error { return nil }
		for _, row := range []struct {
			name, want string
			g          Group
		}{
			{"", "name", Group{Topic: "t", Handler: succeed}},
			{"a b", "name", Group{Topic: "t", Handler: succeed}},
			{"g", "has 0 of Handler", Group{Topic: "t"}},
			{"g", "has 2 of Handler", Group{Topic: "t", Handler: succeed, Manual: manual}},
			{"g", "Bounds is set", Group{Topic: "t", Handler: succeed, Bounds: eventbus.Batch{MaxSize: 3}}},
			{"g", "topic", Group{Handler: succeed}},
			{"g", "Concurrency", Group{Topic: "t", Options: eventbus.SubscribeOptions{Concurrency: -1}, Handler: succeed}},
			{"g", "Batch.MaxSize", Group{Topic: "t", Batch: batch, Bounds: eventbus.Batch{MaxSize: -3}}},
			{"g", "OrderTotal", Group{Topic: "t", Options: eventbus.SubscribeOptions{Order: eventbus.OrderTotal}, Batch: batch}},
		} {
			var f *eventbus.FieldError
			err := s.Register(t.Context(), row.name, row.g)
			require.ErrorAs(t, err, &f, row.want)
			require.ErrorContains(t, err, row.want)
			require.Empty(t, s.Names())
		}
		require.NoError(t, s.Start(t.Context()))
		err := s.Register(t.Context(), "g", Group{Topic: "t", Options: eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive}, Manual: manual})
		require.ErrorContains(t, err, "Ack", "only Subscribe refuses it")
		require.Empty(t, s.Names())
		require.ErrorContains(t, s.Stop(t.Context(), "g"), `is "g", which is not registered`)

		for _, o := range []Options{{Defaults: eventbus.SubscribeOptions{Order: eventbus.Unordered}}, {Servers: []eventbus.Server{nil}}} {
			_, err := New(bus, o)
			require.Error(t, err)
		}
		_, err = New(nil, Options{})
		require.Error(t, err)
	})
}

// A group that cannot start stays registered, and the others run.
func TestStartAgain(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus, s *Service) {
		broken := &brokenBus{Bus: bus, topic: "orders"}
		s.bus = broken
		require.NoError(t, s.Register(t.Context(), "orders", Group{Topic: "orders", Handler: succeed}))
		require.NoError(t, s.Register(t.Context(), "refunds", Group{Topic: "refunds", Handler: succeed}))
		require.ErrorIs(t, s.Start(t.Context()), errBroken)
		require.Nil(t, s.Subscription("orders"))
		require.NotNil(t, s.Subscription("refunds"))
		require.ErrorIs(t, s.Register(t.Context(), "more", Group{Topic: "orders", Handler: succeed}), errBroken)
		require.Equal(t, []string{"orders", "refunds"}, s.Names())
		broken.topic = ""
		require.NoError(t, s.Start(t.Context()))
		require.NotNil(t, s.Subscription("orders"))
	})
}

var errBroken = errors.New("broken")

// A brokenBus does not subscribe to a topic.
type brokenBus struct {
	Bus
	topic string
}

func (b *brokenBus) Subscribe(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.Handler) (*eventbus.Subscription, error) {
	if topic == b.topic {
		return nil, errBroken
	}
	return b.Bus.Subscribe(ctx, topic, o, h)
}

// Stop ends one group. Another handler may take its name, and the counts of both are in the
// Outcome.
func TestStopAndReplace(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus, s *Service) {
		fails := func(_ context.Context, d *eventbus.Delivery) error {
			if d.Attempt == 1 {
				return errBroken
			}
			return nil
		}
		var other atomic.Int64
		require.NoError(t, s.Register(t.Context(), "other", Group{Topic: "orders", Handler: counting(&other)}))
		require.NoError(t, s.Register(t.Context(), "g", Group{Topic: "orders", Handler: fails}))
		require.NoError(t, s.Start(t.Context()))
		publish(t, bus, "orders", "1", "2")
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.EqualValues(t, 2, s.Outcome().Failures)
		require.NoError(t, s.Stop(t.Context(), "g"))
		require.Equal(t, []string{"other"}, s.Names())
		require.EqualValues(t, 2, s.Outcome().Failures)
		publish(t, bus, "orders", "3")
		require.NoError(t, s.Register(t.Context(), "g", Group{Topic: "orders", Handler: fails}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		o := s.Outcome()
		require.EqualValues(t, 3, o.Failures)
		require.EqualValues(t, 3, o.Groups["g"].Failures)
		require.EqualValues(t, 6, o.Groups["g"].Received)
		require.EqualValues(t, 3, o.Groups["other"].Received)
		require.Zero(t, o.ExitCode(), "a failure that is retried is not an error of the service")

		require.NoError(t, s.StopAll(t.Context()))
		require.Empty(t, s.Names())
		require.Equal(t, o.Failures, s.Outcome().Failures)
		publish(t, bus, "orders", "4")
		require.EqualValues(t, 3, other.Load())
		require.NoError(t, s.Register(t.Context(), "other", Group{Topic: "orders", Handler: counting(&other)}))
		time.Sleep(time.Second)
		require.EqualValues(t, 4, other.Load(), "a service may continue after StopAll")
	})
}

// A handler cannot stop its own group, for which it would wait, but another one.
func TestStopInAHandler(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus, s *Service) {
		results := make(chan error, 2)
		require.NoError(t, s.Register(t.Context(), "other", Group{Topic: "orders", Handler: succeed}))
		require.NoError(t, s.Register(t.Context(), "g", Group{Topic: "orders", Handler: func(ctx context.Context, _ *eventbus.Delivery) error {
			results <- s.Stop(ctx, "g")
			results <- s.Stop(ctx, "other")
			return nil
		}}))
		require.NoError(t, s.Start(t.Context()))
		publish(t, bus, "orders", "1")
		require.ErrorIs(t, <-results, eventbus.ErrInHandler)
		require.NoError(t, <-results)
		require.NoError(t, s.Stop(t.Context(), "g"))
	})
}

// Many calls of Stop at once drain a group once, and count it once.
func TestStopAtOnce(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus, s *Service) {
		require.NoError(t, s.Register(t.Context(), "g", Group{Topic: "orders", Handler: func(context.Context, *eventbus.Delivery) error {
			time.Sleep(time.Second)
			panic("boom")
		}}))
		require.NoError(t, s.Start(t.Context()))
		publish(t, bus, "orders", "1")
		synctest.Wait()
		errs := make(chan error, 8)
		for range cap(errs) {
			go func() { errs <- s.Stop(t.Context(), "g") }()
		}
		synctest.Wait()
		require.NoError(t, s.Register(t.Context(), "more", Group{Topic: "orders", Handler: succeed}), "nothing waits for the drain")
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
		o := s.Outcome()
		require.EqualValues(t, 1, o.Panics)
		require.EqualValues(t, 1, o.Failures)
		require.Equal(t, ExitPanics, o.ExitCode())
	})
}
