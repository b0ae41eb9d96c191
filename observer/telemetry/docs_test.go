package telemetry_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// table returns the rows of docs/telemetry.md below the heading, by the name in their first
// cell.
func table(t *testing.T, heading string) map[string][]string {
	text, err := os.ReadFile("../../docs/telemetry.md")
	require.NoError(t, err)
	_, part, found := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, found, heading)
	part, _, _ = strings.Cut(part, "\n## ")
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$").FindAllStringSubmatch(part, -1) {
		cells := strings.Split(m[2], "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[m[1]] = cells
	}
	return rows
}

// everything makes a bus produce every span and every metric, and returns the metrics.
func everything(t *testing.T) (*recorder, map[string]metricdata.Metrics) {
	r := newRecorder(t, telemetry.Options{})
	bus := r.divided(inmemory.New(inmemory.Options{}), 2)
	defer func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) }()
	snoozed := false
	subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
		if d.ID != "fails" {
			return nil
		}
		if snoozed {
			return errors.New("no")
		}
		snoozed = true
		return eventbus.Snooze(time.Second)
	})
	_, err := bus.Subscribe(t.Context(), "divided", eventbus.SubscribeOptions{Group: "billing"}, succeed)
	require.NoError(t, err)
	large := eventbus.Headers{{Name: "h", Value: strings.Repeat("x", eventbus.MaxHeaderBytes-10)}}
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "fails", Type: "order.placed"}))
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "2"}, &eventbus.Event{ID: "3", Headers: large}))
	require.Error(t, bus.Publish(t.Context(), "orders", &eventbus.Event{TTL: -1}))
	time.Sleep(time.Minute)
	synctest.Wait()
	hooks, about := r.telemetry.Observer(), observer.About{Topic: "orders", Group: "billing", ID: "4"}
	hooks.Dropped(observer.Dropped{Topic: "orders", Events: 1})
	hooks.Discarded(observer.Discarded{About: about, Reason: "dropped"})
	hooks.Extended(observer.Extended{Topic: "orders", Group: "billing", Events: 1})
	hooks.LeaseLost(observer.LeaseLost{About: about})
	hooks.Stuck(observer.Stuck{About: about})
	hooks.Failed(observer.Failed{Scope: observer.Ack, About: about, Err: eventbus.ErrUnavailable})
	hooks.Failed(observer.Failed{Scope: observer.Observe, Events: 1, Err: observer.ErrDropped})
	return r, r.collect()
}

// docs/telemetry.md lists every span, with its kind and its attributes, and no other.
func TestTheDocsListTheSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		documented, seen := table(t, "Spans"), map[string]bool{}
		r, _ := everything(t)
		for _, s := range r.spans.Ended() {
			operation, _, _ := strings.Cut(s.Name(), " ")
			row := documented[operation]
			require.Len(t, row, 3, "a row for %s", s.Name())
			seen[operation] = true
			require.Contains(t, row[0]+" "+row[1], s.SpanKind().String(), operation)
			for _, a := range s.Attributes() {
				switch a.Key {
				case "messaging.system", "messaging.operation.name", "messaging.destination.name", "server.address", "server.port", "messaging.client.id":
				case "messaging.operation.type":
					require.True(t, strings.HasPrefix(row[0], a.Value.AsString()+","), "the type of %s is %s", operation, a.Value.AsString())
				default:
					require.Contains(t, row[2], "`"+string(a.Key)+"`", operation)
				}
			}
		}
		for operation := range documented {
			require.True(t, seen[operation], "there is no span %s", operation)
		}
	})
}

// docs/telemetry.md lists every metric, with its kind, unit and labels, and no other.
func TestTheDocsListTheMetrics(t *testing.T) {
	labels := map[string]string{
		"messaging.destination.name": "topic", "messaging.consumer.group.name": "group", "messaging.operation.name": "operation",
		"messaging.operation.type": "operation", "error.type": "error", "eventbus.event.type": "type", "eventbus.outcome": "outcome",
		"eventbus.reason": "reason", "eventbus.scope": "scope",
	}
	synctest.Test(t, func(t *testing.T) {
		documented := table(t, "Metrics")
		_, all := everything(t)
		for name, m := range all {
			row := documented[name]
			require.Len(t, row, 3, "a row for %s", name)
			require.Equal(t, kindOf(m)+", "+m.Unit, row[0], name)
			used := map[string]bool{}
			for _, p := range points(m) {
				for _, a := range p.set.ToSlice() {
					switch a.Key {
					case "messaging.system", "server.address", "server.port":
					default:
						require.Contains(t, labels, string(a.Key), name)
						used[labels[string(a.Key)]] = true
					}
				}
			}
			for label := range used {
				require.Contains(t, strings.Split(row[1], ", "), label, name)
			}
		}
		for name := range documented {
			require.Contains(t, all, name)
		}
	})
}

func kindOf(m metricdata.Metrics) string {
	switch m.Data.(type) {
	case metricdata.Sum[int64]:
		return "counter"
	case metricdata.Histogram[int64], metricdata.Histogram[float64]:
		return "histogram"
	}
	return "gauge"
}
