package nats_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/nats"
)

// NATS stores messages published to a wildcard subject under that literal name. So a topic
// cannot be a wildcard. A subscription with a pattern attaches to the topics that match, and
// makes no other.
func TestLiteralWildcard(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]nats.Options{"stream of each topic": {}, "one stream": {Stream: "events"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, o)
			bus := p.bus(t, eventbus.Options{})
			require.NoError(t, bus.Publish(t.Context(), "a.b", &eventbus.Event{})) // so that there is a stream
			for _, topic := range []string{"*", ">", "a.*", "a.>", "*.b", "a.b.>", "$JS.API.STREAM.DELETE.bus=a+b"} {
				field, ok := errors.AsType[*eventbus.FieldError](bus.Publish(t.Context(), topic, &eventbus.Event{}))
				require.True(t, ok, "Publish to %q: want a FieldError", topic)
				require.NotEmpty(t, field.Field)
			}
			subscribe := func(topic string) error {
				_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error { return nil })
				return err
			}
			require.Error(t, subscribe("$JS.API.STREAM.DELETE.bus=a+b"))
			require.NoError(t, subscribe("a.*"))
			require.Eventually(t, func() bool {
				groups, err := p.b.Groups(t.Context(), "a.b")
				require.NoError(t, err)
				return len(groups) == 1
			}, 10*time.Second, 10*time.Millisecond)
			topics, err := p.b.Topics(t.Context())
			require.NoError(t, err)
			require.Subset(t, []string{"a.b", "a.b.dlq"}, topics, "only the topic that matches, and its dead letters")
			messages := uint64(0)
			for info := range p.js.ListStreams(t.Context()).Info() {
				messages += info.State.Msgs
			}
			require.EqualValues(t, 1, messages, "nothing was stored besides")
		})
	}
}
