package telemetry_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// A statser is a backend in memory whose answers about groups the test gives.
type statser struct {
	*inmemory.Backend
	asked atomic.Int64
	stats func(ctx context.Context) (backend.Stats, error)
}

var _ backend.Statser = (*statser)(nil)

func (s *statser) Unwrap() backend.Backend { return s.Backend }

func (s *statser) Stats(ctx context.Context, _, _ string) (backend.Stats, error) {
	s.asked.Add(1)
	return s.stats(ctx)
}

// watched runs f with a bus on a statser that has two members of one group.
func watched(t *testing.T, stats func(context.Context) (backend.Stats, error), f func(r *recorder, s *statser, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, telemetry.Options{})
		s := &statser{Backend: inmemory.New(inmemory.Options{}), stats: stats}
		bus, err := eventbus.New(s, r.options())
		require.NoError(t, err)
		defer func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) }()
		subscribe(t, bus, succeed)
		subscribe(t, bus, succeed)
		stop, err := r.telemetry.Watch(bus)
		require.NoError(t, err)
		defer stop()
		f(r, s, stop)
	})
}

// The gauges show the answers of the backend, which is asked every ten seconds at most.
// Unknown numbers are left out.
func TestGroupsAreSampled(t *testing.T) {
	stats := func(context.Context) (backend.Stats, error) {
		return backend.Stats{Depth: 9, Lag: 7, InFlight: backend.Unknown, Delayed: 2, Members: 3, Oldest: time.Now().Add(-time.Minute)}, nil
	}
	watched(t, stats, func(r *recorder, s *statser, stop func()) {
		require.EqualValues(t, 7, r.value("eventbus.group.lag"))
		require.EqualValues(t, 2, r.value("eventbus.group.delayed"))
		require.EqualValues(t, 3, r.value("eventbus.group.members"))
		require.EqualValues(t, 9, r.value("eventbus.topic.depth"))
		require.NotContains(t, r.lines(), "eventbus.group.in_flight")
		for range 9 {
			time.Sleep(time.Second)
			require.InDelta(t, 60+9, r.value("eventbus.group.oldest.age"), 9)
		}
		require.EqualValues(t, 1, s.asked.Load(), "in the first ten seconds")
		time.Sleep(time.Second)
		require.InDelta(t, 60, r.value("eventbus.group.oldest.age"), 0)
		require.EqualValues(t, 2, s.asked.Load())
		stop()
		require.NotContains(t, r.lines(), "eventbus.group", "after stop")
	})
}

// A backend that does not answer delays a collection by a quarter of a second at most. stop
// ends the call to it.
func TestASilentBackendDelaysNoCollection(t *testing.T) {
	silent := func(ctx context.Context) (backend.Stats, error) {
		<-ctx.Done()
		return backend.Stats{}, ctx.Err()
	}
	watched(t, silent, func(r *recorder, _ *statser, stop func()) {
		for range 3 {
			start := time.Now()
			require.EqualValues(t, 0, r.value("eventbus.held.messages"))
			require.Equal(t, 250*time.Millisecond, time.Since(start))
			require.NotContains(t, r.lines(), "eventbus.group")
		}
		time.Sleep(10 * time.Second)
		require.Contains(t, r.lines(), "eventbus.failures{error.type=timeout,scope=stats,group=billing,topic=orders} 1")
		start := time.Now()
		stop()
		require.Equal(t, start, time.Now())
	})
}

// A backend that cannot describe groups, or panics, leaves the other gauges alone.
func TestABackendWithoutAnswers(t *testing.T) {
	for name, stats := range map[string]func(context.Context) (backend.Stats, error){
		"unsupported": func(context.Context) (backend.Stats, error) { return backend.Stats{}, errors.ErrUnsupported },
		"panic":       func(context.Context) (backend.Stats, error) { panic("no") },
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, stats, func(r *recorder, _ *statser, _ func()) {
				lines := r.lines()
				require.Contains(t, lines, "eventbus.held.messages")
				require.NotContains(t, lines, "eventbus.group")
			})
		})
	}
}

// The load of several members of one group is added up.
func TestLoad(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		for range 2 {
			subscribe(t, bus, func(ctx context.Context, _ *eventbus.Delivery) error {
				<-ctx.Done()
				return nil
			})
		}
		for range 2 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1234", Payload: make([]byte, 96)}))
		}
		synctest.Wait()
		require.EqualValues(t, 2, r.value("eventbus.held.messages"))
		require.EqualValues(t, 2, r.value("eventbus.handlers.running"))
		require.Greater(t, r.value("eventbus.held.size"), 200.0, "payloads, IDs and headers")
		for _, s := range bus.Subscriptions() {
			now := s.Counts()
			require.EqualValues(t, 1, now.Held)
			require.EqualValues(t, 1, now.Running)
			require.Positive(t, now.HeldBytes)
		}
		time.Sleep(2 * time.Minute) // each run ends at its timeout
		require.EqualValues(t, 0, r.value("eventbus.held.messages"))
		require.EqualValues(t, 0, r.value("eventbus.held.size"))
	})
}

// Each hook of the observer counts.
func TestHooks(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, _ *eventbus.Bus) {
		o, about := r.telemetry.Observer(), observer.About{Topic: "orders", Group: "billing", ID: "o-1", Attempt: 3}
		o.Received(observer.Received{Topic: "orders", Group: "billing", Events: 5, Redelivered: 2})
		o.Handled(observer.Handled{About: about, Outcome: observer.Return, Err: eventbus.ErrShutdown})
		o.Settled(observer.Settled{Topic: "orders", Group: "billing", Events: 4, Took: time.Second})
		o.Retried(observer.Retried{About: about, Outcome: observer.Retry, After: time.Minute})
		o.DeadLettered(observer.DeadLettered{About: about, Reason: "unreadable", DeadLetter: "orders.dlq"})
		o.Discarded(observer.Discarded{About: about, Reason: "dropped"})
		o.Extended(observer.Extended{Topic: "orders", Group: "billing", Events: 6})
		o.LeaseLost(observer.LeaseLost{About: about})
		o.PartitionMoved(observer.PartitionMoved{Topic: "orders", Group: "billing", Reason: observer.ReasonTaken, Err: errors.New("no")})
		o.Stuck(observer.Stuck{About: about})
		o.Failed(observer.Failed{Scope: observer.Ack, About: about, Events: 9, Err: eventbus.ErrUnavailable})
		o.Failed(observer.Failed{Scope: observer.Observe, Events: 8, Err: observer.ErrDropped})
		require.Equal(t, `eventbus.attempts{error.type=shutdown,outcome=return,group=billing,topic=orders} 1
eventbus.dead_letters{reason=unreadable,group=billing,topic=orders} 1
eventbus.discarded.messages{reason=dropped,group=billing,topic=orders} 1
eventbus.failures{error.type=unavailable,scope=ack,group=billing,topic=orders} 1
eventbus.handlers.stuck{group=billing,topic=orders} 1
eventbus.leases.extended{group=billing,topic=orders} 6
eventbus.leases.lost{group=billing,topic=orders} 1
eventbus.observer.dropped{} 8
eventbus.partitions.moved{reason=taken,group=billing,topic=orders} 1
eventbus.receive.batch.size{group=billing,topic=orders} 1
eventbus.redelivered.messages{group=billing,topic=orders} 2
messaging.client.consumed.messages{group=billing,topic=orders,operation=receive} 5
messaging.client.operation.duration{group=billing,topic=orders,operation=acknowledge} 1
`, r.lines())
		require.Equal(t, `retry orders [client] messaging.consumer.group.name=billing eventbus.retry.delay=60 eventbus.attempt=3 messaging.message.id=o-1
dead-letter orders [client] messaging.consumer.group.name=billing eventbus.reason=unreadable eventbus.dead_letter.topic=orders.dlq eventbus.attempt=3 messaging.message.id=o-1
discard orders [client] messaging.consumer.group.name=billing eventbus.reason=dropped eventbus.attempt=3 messaging.message.id=o-1
`, r.tree())
	})
}

// A subscription that cannot reach its backend shows as degraded.
func TestDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, telemetry.Options{})
		s := &broken{Backend: inmemory.New(inmemory.Options{})}
		bus := r.bus(s)
		defer func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) }()
		subscribe(t, bus, func(context.Context, *eventbus.Delivery) error {
			assert.EqualValues(t, 0, r.value("eventbus.subscription.degraded"), "an event has arrived")
			return nil
		})
		synctest.Wait()
		require.EqualValues(t, 1, r.value("eventbus.subscription.degraded"))
		s.healed.Store(true)
		time.Sleep(10 * time.Second)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.Equal(t, 1, <-r.settled)
		require.EqualValues(t, 0, r.value("eventbus.subscription.degraded"))
	})
}

// A subscription whose breaker is open shows as limited.
func TestLimited(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{
			Group: "billing", Limiter: limiter.NewBreaker(limiter.BreakerOptions{Failures: 0.5, Runs: 1, Pause: time.Minute}),
		}, func(_ context.Context, d *eventbus.Delivery) error {
			if d.Attempt == 1 {
				return errors.New("no")
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		time.Sleep(30 * time.Second)
		require.EqualValues(t, 1, r.value("eventbus.subscription.limited"))
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 0, r.value("eventbus.subscription.limited"))
	})
}

// The gauge of partitions has the share of this program, even while that is none, and only of topics
// with partitions. The counter has each move with its reason.
func TestPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		join := func() (*recorder, *eventbus.Bus) {
			r := newRecorder(t, telemetry.Options{})
			bus := r.divided(b, 2)
			subscribe(t, bus, succeed)
			_, err := bus.Subscribe(t.Context(), "divided", eventbus.SubscribeOptions{Group: "billing", Lease: 10 * time.Second}, succeed)
			require.NoError(t, err)
			return r, bus
		}
		of := attribute.String("messaging.destination.name", "divided")
		reason := func(name string) attribute.KeyValue { return attribute.String("eventbus.reason", name) }
		first, one := join()
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 2, first.value("eventbus.subscription.partitions", of))
		require.EqualValues(t, 2, first.value("eventbus.partitions.moved", of, reason("gained")))
		require.NotContains(t, first.lines(), "eventbus.subscription.partitions{group=billing,topic=orders}")
		second, two := join()
		third, three := join()
		time.Sleep(5 * time.Second)
		total := first.value("eventbus.subscription.partitions", of) + second.value("eventbus.subscription.partitions", of) + third.value("eventbus.subscription.partitions", of)
		require.EqualValues(t, 2, total, "one of three has none, and says so")
		require.EqualValues(t, 1, first.value("eventbus.partitions.moved", of, reason("given-back")))
		require.NoError(t, b.DeleteTopic(t.Context(), "divided.partitions.owners"))
		time.Sleep(15 * time.Second)
		require.Regexp(t, `eventbus.partitions.moved{reason=(deleted|taken),group=billing,topic=divided} 1`, first.lines())
		for _, bus := range []*eventbus.Bus{one, two, three} {
			require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
		}
	})
}

// A broken backend cannot be read until the test repairs it.
type broken struct {
	*inmemory.Backend
	healed atomic.Bool
}

func (b *broken) Unwrap() backend.Backend { return b.Backend }

func (b *broken) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return &brokenSource{s, b}, err
}

type brokenSource struct {
	backend.Source
	of *broken
}

func (s *brokenSource) Unwrap() backend.Source { return s.Source }

func (s *brokenSource) Receive(ctx context.Context, n int, maxBytes int64) ([]backend.Delivery, error) {
	if !s.of.healed.Load() {
		return nil, backend.ErrUnavailable
	}
	return s.Source.Receive(ctx, n, maxBytes)
}
