package nats_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/nats"
)

// NATS stores messages published to a wildcard subject under that literal name. So a topic
// cannot be a wildcard.
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
				_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error { return nil })
				require.Error(t, err, "Subscribe to %q", topic)
			}
			var streams []*jetstream.StreamInfo
			for info := range p.js.ListStreams(t.Context()).Info() {
				streams = append(streams, info)
			}
			require.Len(t, streams, 1, "the first topic's only")
			require.EqualValues(t, 1, streams[0].State.Msgs, "nothing was stored besides")
			require.Zero(t, streams[0].State.Consumers, "no group was made")
		})
	}
}
