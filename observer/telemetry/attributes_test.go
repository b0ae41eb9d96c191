package telemetry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// A known is a backend in memory with the identity of a broker.
type known struct {
	*inmemory.Backend
	identity backend.Identity
}

func (k known) Identity() backend.Identity { return k.identity }

// Two brokers of one program can be told apart, in spans and in metrics.
func TestTheBrokerIsNamed(t *testing.T) {
	for _, identity := range []backend.Identity{
		{System: "redis", Address: "10.0.0.1", Port: 6379, Client: "billing-1"},
		{System: "nats", Address: "/run/nats.sock"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRecorder(t, telemetry.Options{})
			bus := r.bus(known{inmemory.New(inmemory.Options{}), identity})
			subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { return nil })
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "o-1", Payload: []byte("12345")}))
			synctest.Wait()
			both := []attribute.KeyValue{attribute.String("messaging.system", identity.System), attribute.String("server.address", identity.Address)}
			if identity.Port > 0 {
				both = append(both, attribute.Int("server.port", identity.Port))
			}
			for name, m := range r.collect() {
				for _, p := range points(m) {
					for _, a := range both {
						v, _ := p.set.Value(a.Key)
						require.Equal(t, a.Value, v, name)
					}
					require.False(t, p.set.HasValue("messaging.client.id"), name)
				}
			}
			require.NoError(t, bus.Shutdown(t.Context()))
			require.Len(t, r.spans.Ended(), 3)
			for _, s := range r.spans.Ended() {
				require.Subset(t, s.Attributes(), both, s.Name())
				client := attribute.String("messaging.client.id", identity.Client)
				if identity.Client != "" {
					require.Contains(t, s.Attributes(), client, s.Name())
				}
				require.Contains(t, s.Attributes(), attribute.String("messaging.message.id", "o-1"), s.Name())
			}
			size := attribute.Int("messaging.message.body.size", 5)
			require.Contains(t, r.span("publish", 0).Attributes(), size)
			require.Contains(t, r.span("process", 0).Attributes(), size)
		})
	}
}

// The scope of spans and metrics has a version.
func TestTheScopeHasAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := everything(t)
		for _, s := range r.spans.Ended() {
			require.NotEmpty(t, s.InstrumentationScope().Version)
		}
		var all metricdata.ResourceMetrics
		require.NoError(t, r.reader.Collect(context.WithoutCancel(t.Context()), &all))
		require.NotEmpty(t, all.ScopeMetrics)
		for _, s := range all.ScopeMetrics {
			require.NotEmpty(t, s.Scope.Version)
		}
	})
}

// System is an attribute of every span and of every metric.
func TestSystem(t *testing.T) {
	for system, want := range map[string]string{"": "eventbus", "redis": "redis"} {
		inBubble(t, telemetry.Options{System: system}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
			subscribe(t, bus, succeed)
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
			require.Equal(t, 1, <-r.settled)
			for _, s := range r.spans.Ended() {
				require.Contains(t, s.Attributes(), attribute.String("messaging.system", want), s.Name())
			}
			for name, m := range r.collect() {
				for _, p := range points(m) {
					got, _ := p.set.Value("messaging.system")
					require.Equal(t, want, got.AsString(), name)
				}
			}
		})
	}
}

// By default the metrics tell 50 event types apart.
func TestFiftyEventTypes(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		subscribe(t, bus, succeed)
		for i := range 60 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Type: fmt.Sprintf("t%d", i)}))
		}
		time.Sleep(time.Second)
		require.Len(t, points(r.collect()["eventbus.attempts"]), 51)
		require.EqualValues(t, 10, r.value("eventbus.attempts", attribute.String("eventbus.event.type", "_OTHER")))
	})
}

// Beyond the given number event types are "_OTHER".
func TestEventTypesAreBounded(t *testing.T) {
	for most, want := range map[int]map[string]float64{
		2:  {"t0": 1, "t1": 1, "_OTHER": 3},
		-1: {"": 5},
	} {
		inBubble(t, telemetry.Options{EventTypes: most}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
			subscribe(t, bus, succeed)
			for i := range 5 {
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Type: fmt.Sprintf("t%d", i)}))
				time.Sleep(time.Second)
			}
			got := map[string]float64{}
			for _, p := range points(r.collect()["eventbus.attempts"]) {
				kind, _ := p.set.Value("eventbus.event.type")
				got[kind.AsString()] = p.value
			}
			require.Equal(t, want, got)
		})
	}
}
