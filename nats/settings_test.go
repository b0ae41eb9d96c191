package nats_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// ownAndShared runs a test with a stream for each topic, and with one for all.
func ownAndShared(t *testing.T, test func(t *testing.T, o nats.Options, stream string)) {
	t.Parallel()
	t.Run("own", func(t *testing.T) { t.Parallel(); test(t, nats.Options{}, ordersStream) })
	t.Run("shared", func(t *testing.T) { t.Parallel(); test(t, nats.Options{Stream: "events"}, "events") })
}

func (w *watched) declare(topic string, d backend.Declaration) backend.TopicSettings {
	has, err := w.b.Declare(w.Context(), topic, d)
	require.NoError(w, err)
	return has
}

// topicHas expects the number of messages of the topic orders.
func (w *watched) topicHas(n int, why string) {
	w.Helper()
	ms, err := w.b.Read(w.Context(), "orders", backend.StartEarliest, 1000)
	require.NoError(w, err)
	require.Equal(w, n, len(ms), why)
}

// Maintain trims settled messages that are older than Keep, and only these. In a shared
// stream it does so for each topic.
func TestKeepEnds(t *testing.T) {
	ownAndShared(t, func(t *testing.T, o nats.Options, stream string) {
		w := watch(t, newFixture(t, o))
		w.declare("orders", backend.Declaration{Settings: backend.TopicSettings{Keep: time.Second}})
		w.publish("other", 1)
		w.publish("orders", 10)
		w.settle(10)
		w.maintain()
		w.topicHas(10, "younger than Keep")
		time.Sleep(6100 * time.Millisecond) // Keep, and 5 s, the least for which a message may outlive it
		w.publish("orders", 5)
		w.settle(5)
		w.maintain()
		w.topicHas(5, "only the older ones go")
		w.maintain()
		w.topicHas(5, "only the older ones go")
		require.Empty(t, w.notices)
		require.Eventually(t, func() bool {
			s, err := w.js.Stream(t.Context(), stream)
			require.NoError(t, err)
			return s.CachedInfo().State.Consumers == 1
		}, 10*time.Second, 100*time.Millisecond, "the consumer of the search stays")
	})
}

// A crowded stream keeps messages that are younger than Keep.
func TestKeepInACrowdedStream(t *testing.T) {
	t.Parallel()
	w := watch(t, newFixture(t, nats.Options{MaxMessages: 12}))
	w.declare("orders", backend.Declaration{Settings: backend.TopicSettings{Keep: time.Hour}})
	w.publish("orders", 12)
	w.settle(12)
	w.maintain()
	w.topicHas(12, "Maintain removed kept messages")
	w.publish("orders", 1)
	w.topicHas(12, "Publish makes the room that it needs")
}

// Processes that declare a topic at the same time all get the settings that are then in
// force.
func TestDeclareTogether(t *testing.T) {
	ownAndShared(t, func(t *testing.T, o nats.Options, _ string) {
		s := natstest.Start(t)
		var backends []*nats.Backend
		for range 4 {
			b, err := nats.New(connect(t, s), o)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			backends = append(backends, b)
		}
		for _, round := range []string{"new", "existing"} {
			topics := []string{round + "-a", round + "-b"}
			if round == "existing" {
				for _, topic := range topics {
					require.NoError(t, backends[0].Publish(t.Context(), []*backend.Message{{Topic: topic}}))
				}
			}
			var mu sync.Mutex
			told := map[string]map[time.Duration]int{}
			var wg sync.WaitGroup
			for i, b := range backends {
				for _, topic := range topics {
					wg.Go(func() {
						has, err := b.Declare(t.Context(), topic, backend.Declaration{Settings: backend.TopicSettings{Keep: time.Hour + time.Duration(i)}})
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							t.Errorf("declare %s: %v", topic, err)
						}
						if told[topic] == nil {
							told[topic] = map[time.Duration]int{}
						}
						told[topic][has.Keep]++
					})
				}
			}
			wg.Wait()
			for _, topic := range topics {
				has, err := backends[0].Declare(t.Context(), topic, backend.Declaration{})
				require.NoError(t, err)
				require.Equal(t, map[time.Duration]int{has.Keep: len(backends)}, told[topic], topic)
			}
		}
	})
}

// Declare changes nothing else of a stream. It reports settings that it cannot read, and
// Maintain then purges nothing.
func TestDeclareChangesOnlySettings(t *testing.T) {
	t.Parallel()
	w := watch(t, newFixture(t, nats.Options{}))
	s, err := w.js.Stream(t.Context(), ordersStream)
	require.NoError(t, err)
	config := s.CachedInfo().Config
	config.Description, config.MaxMsgSize = "ours", 1<<20
	config.Metadata["owner"], config.Metadata["eventbus.keep"] = "shop", "soon"
	_, err = w.js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	w.publish("orders", 5)
	w.settle(5)
	_, err = w.b.Maintain(t.Context(), "orders", "g")
	require.ErrorIs(t, err, backend.ErrRefused)
	require.ErrorContains(t, err, "metadata eventbus.keep")
	w.topicHas(5, "without Keep nothing may be purged")
	_, err = w.b.Declare(t.Context(), "orders", backend.Declaration{})
	require.ErrorIs(t, err, backend.ErrRefused)

	want := backend.TopicSettings{Keep: time.Hour, MaxMessages: 100, MaxBytes: 1 << 20}
	require.Equal(t, want, w.declare("orders", backend.Declaration{Settings: want, Replace: true}))
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	got := info.Config
	require.EqualValues(t, 100, got.MaxMsgs)
	require.EqualValues(t, 1<<20, got.MaxBytes)
	require.Equal(t, "1h0m0s", got.Metadata["eventbus.keep"])
	require.Equal(t, "shop", got.Metadata["owner"])
	got.MaxMsgs, got.MaxBytes, got.Metadata = config.MaxMsgs, config.MaxBytes, config.Metadata
	require.Equal(t, config, got)
	w.publish("orders", 1)
	w.maintain()
	require.Empty(t, w.notices)

	require.Zero(t, w.declare("orders", backend.Declaration{Replace: true}))
	info, err = s.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, -1, info.Config.MaxMsgs)
	require.EqualValues(t, -1, info.Config.MaxBytes)
	require.NotContains(t, info.Config.Metadata, "eventbus.keep")
}

// A process that dies while it declares holds up others for a few seconds only.
func TestDeclareAfterADeath(t *testing.T) {
	t.Parallel()
	w := watch(t, newFixture(t, nats.Options{}))
	s, err := w.js.Stream(t.Context(), ordersStream)
	require.NoError(t, err)
	_, err = s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "==declare", InactiveThreshold: time.Second})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	settings := backend.TopicSettings{Keep: time.Hour}
	has, err := w.b.Declare(ctx, "orders", backend.Declaration{Settings: settings})
	require.NoError(t, err)
	require.Equal(t, settings, has)
	groups, err := w.b.Groups(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, []string{"g"}, groups)
}

// A stream with a maximum age is used, and a notice says so. The server then removes messages
// that a group has not received, and Maintain sends a notice.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
	config := streamConfig()
	config.MaxAge, config.Duplicates = 2*time.Second, 2*time.Second
	_, err := p.js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	p.b, err = nats.New(p.conn, nats.Options{OnceWindow: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.b.Close()) })
	w := watch(t, p)
	require.Len(t, w.notices, 1)
	require.Contains(t, w.notices[0], "max age")
	w.publish("orders", 7)
	w.maintain()
	require.Eventually(t, func() bool {
		stats, err := w.b.Stats(t.Context(), "orders", "g")
		require.NoError(t, err)
		return stats.Depth == 0
	}, 10*time.Second, 50*time.Millisecond)
	w.publish("orders", 1)
	w.settle(1)
	w.maintain()
	require.Len(t, w.notices, 2)
	require.Contains(t, w.notices[1], "7 messages")
}
