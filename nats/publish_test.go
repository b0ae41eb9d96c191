package nats_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// In a cluster nobody answers for a stream that has no leader yet, because another
// publisher created it a moment ago. The first publishers of a topic may create its stream
// together, each with another first sequence number: one of them learns that the name is in
// use before the stream can be inspected.
func TestFirstPublishesTogether(t *testing.T) {
	t.Parallel()
	r := new(rig)
	b := r.open(t, clustered(), clusterOf(natstest.StartCluster(t)))
	var wg sync.WaitGroup
	for topic := range 20 {
		for range 4 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err := backend.ErrUnavailable
				for errors.Is(err, backend.ErrUnavailable) && ctx.Err() == nil { // as the bus does
					err = b.Publish(ctx, []*backend.Message{{Topic: fmt.Sprint("topic-", topic)}})
				}
				assert.NoError(t, err)
			})
		}
		wg.Wait()
	}
}

// A cluster that elects a new leader may answer a publish twice, half a second apart. The
// driver does not take the second answer for the answer to a later publish.
func TestSecondAnswers(t *testing.T) {
	t.Parallel()
	r := new(rig)
	s := natstest.Start(t)
	b := r.open(t, nats.Options{}, alone(s))
	conn, err := natsgo.Connect(s.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	published, err := conn.SubscribeSync("bus.>")
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	publish := func(id string) string {
		m := &backend.Message{Topic: "orders", ID: id}
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		return m.Position
	}
	first := publish("first")
	var m *natsgo.Msg
	for m == nil || m.Header.Get("ce-id") != "first" { // the driver asks first whether the stream is served
		m, err = published.NextMsgWithContext(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, conn.Publish(m.Reply, []byte(`{"stream":"bus=orders","seq":1}`)))
	require.NoError(t, conn.Flush())
	require.NoError(t, b.(backend.Pinger).Ping(t.Context())) // the driver's connection has the answer now
	require.Greater(t, publish("second"), first)
	ms, err := b.(backend.Reader).Read(t.Context(), "orders", "", 10)
	require.NoError(t, err)
	require.Len(t, ms, 2)
}

// A call ends when its last message that was sent is answered, even if others were not sent. The
// sender must not read those anymore, because the next call uses their memory.
func TestUnsentWordsAreNotRead(t *testing.T) { // finds the fault only with -race
	t.Parallel()
	p := newFixture(t, nats.Options{})
	s, err := p.b.Attach(t.Context(), member())
	require.NoError(t, err)
	require.NoError(t, p.b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
	ds, err := s.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	const many = 1000
	one, all := make([]*backend.Delivery, many), make([]*backend.Delivery, many)
	for i := range many {
		one[i], all[i] = new(backend.Delivery), &ds[0]
	}
	one[0] = &ds[0]
	for range 50 {
		err := s.(backend.Extender).Extend(t.Context(), one)
		require.NoError(t, backend.ErrorAt(err, 0))
		require.ErrorIs(t, backend.ErrorAt(err, many-1), backend.ErrRefused)
		require.NoError(t, s.(backend.Extender).Extend(t.Context(), all))
	}
}

// NATS stores messages published to a wildcard subject under that literal name, so a topic
// cannot be a wildcard. A subscription with a pattern attaches to the topics that match, and
// makes no other.
func TestLiteralWildcard(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]nats.Options{"stream of each topic": {}, "one stream": {Stream: "events"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, o)
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
