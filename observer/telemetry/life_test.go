package telemetry_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer/telemetry"
	"github.com/seed41896749/eventbus/redisstream"
)

// The spans of an event that is published, fails, is tried again, fails again, becomes a
// dead letter, is redriven, and succeeds.
const lifeSpans = `checkout [internal]
  publish orders [producer] messaging.message.body.size=12 messaging.message.id=o-1
    process orders [consumer] messaging.consumer.group.name=billing messaging.message.id=o-1 messaging.message.body.size=12 eventbus.attempt=1 eventbus.event.type=order.placed error.type=_OTHER ERROR → publish orders
      retry orders [client] messaging.consumer.group.name=billing eventbus.retry.delay=0.2 eventbus.attempt=1 messaging.message.id=o-1
    process orders [consumer] messaging.consumer.group.name=billing messaging.message.id=o-1 messaging.message.body.size=12 eventbus.attempt=2 eventbus.event.type=order.placed error.type=_OTHER ERROR → publish orders
      dead-letter orders [client] messaging.consumer.group.name=billing eventbus.reason=exhausted eventbus.dead_letter.topic=orders.dlq eventbus.attempt=2 messaging.message.id=o-1
      acknowledge orders [client] messaging.consumer.group.name=billing messaging.message.id=o-1
    process orders [consumer] messaging.consumer.group.name=billing messaging.message.id=o-1 messaging.message.body.size=12 eventbus.attempt=1 eventbus.event.type=order.placed → publish orders
      acknowledge orders [client] messaging.consumer.group.name=billing messaging.message.id=o-1
`

// The metrics of that event. A histogram has the number of its measurements.
const lifeMetrics = `eventbus.attempts{error.type=_OTHER,event.type=order.placed,outcome=dead-letter,group=billing,topic=orders} 1
eventbus.attempts{error.type=_OTHER,event.type=order.placed,outcome=retry,group=billing,topic=orders} 1
eventbus.attempts{event.type=order.placed,outcome=acknowledge,group=billing,topic=orders} 1
eventbus.dead_letters{reason=exhausted,group=billing,topic=orders} 1
eventbus.group.delayed{group=billing,topic=orders} 0
eventbus.group.in_flight{group=billing,topic=orders} 0
eventbus.group.lag{group=billing,topic=orders} 0
eventbus.group.members{group=billing,topic=orders} 1
eventbus.group.oldest.age{group=billing,topic=orders} 0
eventbus.handlers.running{group=billing,topic=orders} 0
eventbus.held.messages{group=billing,topic=orders} 0
eventbus.held.size{group=billing,topic=orders} 0
eventbus.publish.batch.size{topic=orders} 1
eventbus.queue.time{event.type=order.placed,group=billing,topic=orders} 1
eventbus.receive.batch.size{group=billing,topic=orders} 3
eventbus.redelivered.messages{group=billing,topic=orders} 1
eventbus.subscription.degraded{group=billing,topic=orders} 0
eventbus.subscription.limited{group=billing,topic=orders} 0
eventbus.topic.depth{topic=orders} 0
messaging.client.consumed.messages{group=billing,topic=orders,operation=receive} 3
messaging.client.operation.duration{group=billing,topic=orders,operation=acknowledge} 2
messaging.client.operation.duration{topic=orders,operation=publish} 1
messaging.client.sent.messages{topic=orders,operation=publish} 1
messaging.process.duration{error.type=_OTHER,event.type=order.placed,group=billing,topic=orders,operation=process} 2
messaging.process.duration{event.type=order.placed,group=billing,topic=orders,operation=process} 1
`

// live lets one event live its life on b, and compares spans and metrics, except for the
// metrics that depend on the moment.
func live(t *testing.T, b backend.Backend, except ...string) {
	r := newRecorder(t, telemetry.Options{ContinueTrace: true, SampleEvery: time.Nanosecond})
	bus := r.bus(b)
	var open atomic.Bool
	_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{
		Group: "billing", Retry: eventbus.Retry{MaxAttempts: 2, Delay: func(*eventbus.Delivery, error) time.Duration { return 200 * time.Millisecond }},
	}, func(context.Context, *eventbus.Delivery) error {
		if !open.Load() {
			return errors.New("the bank is closed")
		}
		return nil
	})
	require.NoError(t, err)

	ctx, checkout := r.tracers.Tracer("shop").Start(t.Context(), "checkout")
	event := &eventbus.Event{ID: "o-1", Type: "order.placed", Payload: []byte("three apples")}
	require.NoError(t, bus.Publish(ctx, "orders", event))
	checkout.End()
	<-r.settled
	require.Empty(t, event.Headers, "the event has its own headers again")
	open.Store(true)
	letters, err := deadletter.Open(b, "orders.dlq")
	require.NoError(t, err)
	report, err := letters.Redrive(t.Context(), deadletter.Redrive{})
	require.NoError(t, err)
	require.Equal(t, 1, report.Redriven)
	<-r.settled
	time.Sleep(100 * time.Millisecond) // the hook Handled may come after the settlement

	want, got := lifeMetrics, r.lines()
	for _, name := range except {
		want, got = without(want, name), without(got, name)
	}
	require.Equal(t, want, got)
	require.NoError(t, bus.Shutdown(t.Context()))
	require.Equal(t, lifeSpans, r.tree())
}

// without removes the line that begins with name.
func without(text, name string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, name+"{") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestLifeInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { live(t, inmemory.New(inmemory.Options{})) })
}

// depth falls when the broker is maintained.
const depth = "eventbus.topic.depth"

func TestLifeOnRedis(t *testing.T) {
	live(t, open(t, redisstream.Driver{}, redistest.Start(t).URL()), depth)
}

func TestLifeOnNATS(t *testing.T) {
	live(t, open(t, nats.Driver{}, natstest.Start(t).URL()), depth, "eventbus.group.members")
}

func open(t *testing.T, d backend.Driver, rawURL string) backend.Backend {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	b, err := d.Open(t.Context(), u)
	require.NoError(t, err)
	return b
}
