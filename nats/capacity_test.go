package nats_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// small starts a server with an account that has the given limits, and opens a backend there.
func small(t *testing.T, limits, parameters string) *nats.Backend {
	t.Helper()
	s := natstest.StartConfigured(t, "jetstream: {}\naccounts: {A: {jetstream: {"+limits+"}, users: [{user: a, password: a}]}}\n")
	b, err := dial(t, "nats://a:a@"+s.Addr()+parameters)
	require.NoError(t, err)
	return b
}

// Topics reserve no storage, so a small account holds many of them with their dead-letter
// topics.
func TestTopicsReserveNothing(t *testing.T) {
	t.Parallel()
	b := small(t, "max_file: 32MB", "")
	for i := range 50 {
		for _, topic := range []string{fmt.Sprint("t", i), fmt.Sprint("t", i, ".dlq")} {
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic, ID: "1"}}), topic)
		}
	}
}

// A full account refuses messages with ErrFull, and drops none. It accepts messages again
// after Maintain, although one message is still held.
func TestFullAccount(t *testing.T) {
	t.Parallel()
	b := small(t, "max_file: 4MB", "")
	member, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Minute})
	require.NoError(t, err)
	big := func() error {
		return backend.ErrorAt(b.Publish(t.Context(), []*backend.Message{{Topic: topic, Payload: make([]byte, 100<<10)}}), 0)
	}
	stored := 0
	for err = big(); err == nil && stored < 100; err = big() {
		stored++
	}
	require.ErrorIs(t, err, backend.ErrFull)
	stats, err := b.Stats(t.Context(), topic, group)
	require.NoError(t, err)
	require.EqualValues(t, stored, stats.Depth)

	var ds []*backend.Delivery
	for len(ds) < stored {
		some, err := member.Receive(t.Context(), stored, 0)
		require.NoError(t, err)
		for i := range some {
			d := some[i]
			ds = append(ds, &d)
		}
	}
	require.NoError(t, member.Ack(t.Context(), ds[:stored-1]))
	require.Eventually(t, func() bool {
		_, err := b.Maintain(t.Context(), topic, group)
		require.NoError(t, err)
		return big() == nil
	}, 10*time.Second, 50*time.Millisecond, "the account stays full")
}

// An account that requires a limit for each stream says so, and accepts topics with one.
func TestAccountRequiresMaxBytes(t *testing.T) {
	t.Parallel()
	const limits = "max_file: 64MB, max_bytes_required: true"
	err := small(t, limits, "").Publish(t.Context(), []*backend.Message{{Topic: topic}})
	require.ErrorIs(t, backend.ErrorAt(err, 0), backend.ErrRefused)
	require.ErrorContains(t, err, "max_bytes")
	require.NoError(t, small(t, limits, "?max_bytes=1MiB").Publish(t.Context(), []*backend.Message{{Topic: topic}}))
}

// A stream with a limit that no option asks for is used without a notice. Topics of earlier
// versions have one.
func TestLimitOfEarlierVersions(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
	config := streamConfig()
	config.MaxBytes, config.MaxMsgs = 256<<20, 1000
	_, err := p.js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	c := member()
	c.Notify = func(n backend.Notice) { t.Errorf("notice: %s", n.Text) }
	_, err = p.b.Attach(t.Context(), c)
	require.NoError(t, err)
}

// A busy stream without a limit is purged before settled messages fill the disk.
func TestBusyStreamIsPurged(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b, err := as(t, s, "")
	require.NoError(t, err)
	member, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Minute})
	require.NoError(t, err)
	conn, err := natsgo.Connect(s.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "bus="+strings.ReplaceAll(topic, ".", "+"))
	require.NoError(t, err)
	var held []*backend.Delivery
	for range 100 { // 90 MiB
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic, Payload: make([]byte, 900<<10)}}))
		require.NoError(t, member.Ack(t.Context(), held[:max(len(held)-1, 0)])) // one stays held
		held = held[max(len(held)-1, 0):]
		for had := len(held); len(held) == had; {
			ds, err := member.Receive(t.Context(), 1, 0)
			require.NoError(t, err)
			held = append(held, backend.Lend(slices.Clone(ds))...)
		}
		_, err := b.Maintain(t.Context(), topic, group)
		require.NoError(t, err)
	}
	info, err := stream.Info(t.Context())
	require.NoError(t, err)
	require.Less(t, info.State.Bytes, uint64(70<<20))
}

// Several processes publish to a topic that is full of settled messages. No message is
// refused, and each call keeps its order, although the sizes of messages differ.
func TestRoomIsMadeInTime(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]backend.TopicSettings{
		"messages": {Keep: time.Hour, MaxMessages: 4000},
		"bytes":    {Keep: time.Hour, MaxBytes: 8 << 20},
		"both":     {Keep: time.Hour, MaxMessages: 4000, MaxBytes: 12 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			var backends []*nats.Backend
			for range 3 {
				b, err := nats.New(connect(t, s), nats.Options{})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, b.Close()) })
				backends = append(backends, b)
			}
			_, err := backends[0].Declare(t.Context(), "orders", backend.Declaration{Settings: settings})
			require.NoError(t, err)
			src, err := backends[0].Attach(t.Context(), member())
			require.NoError(t, err)
			var highest int64
			for range 12 {
				var wg sync.WaitGroup
				var stored atomic.Int64
				for _, b := range backends {
					for range 2 {
						wg.Go(func() {
							for range 20 {
								ms := make([]*backend.Message, 1+rand.IntN(20))
								for i := range ms {
									ms[i] = &backend.Message{Topic: "orders", Payload: make([]byte, rand.IntN(1<<rand.IntN(16)))}
								}
								if err := b.Publish(t.Context(), ms); err != nil {
									t.Errorf("a call of %d messages: %v", len(ms), err)
									return
								}
								stored.Add(int64(len(ms)))
								for i, m := range ms {
									if i > 0 && m.Position <= ms[i-1].Position {
										t.Errorf("message %d of a call is at %s, after %s", i, m.Position, ms[i-1].Position)
									}
								}
							}
						})
					}
				}
				wg.Wait()
				for n := int(stored.Load()); n > 0; {
					ds, err := src.Receive(t.Context(), n, 0)
					require.NoError(t, err)
					require.NoError(t, src.Ack(t.Context(), backend.Lend(ds)))
					n -= len(ds)
				}
				stats, err := backends[0].Stats(t.Context(), "orders", "g")
				require.NoError(t, err)
				highest = max(highest, stats.Depth)
			}
			if settings.MaxBytes == 0 {
				require.Greater(t, highest, settings.MaxMessages*6/8, "much more was removed than is needed")
			}
		})
	}
}

// A client that may not look for room gets ErrFull at once, until others have made room.
func TestRoomIsDenied(t *testing.T) {
	t.Parallel()
	server := prepared(t, permissions(t))
	owner, err := as(t, server, "")
	require.NoError(t, err)
	_, err = owner.Declare(t.Context(), "small", backend.Declaration{Settings: backend.TopicSettings{MaxMessages: 3}})
	require.NoError(t, err)
	c := member()
	c.Topic = "small"
	src, err := owner.Attach(t.Context(), c)
	require.NoError(t, err)
	publisher, err := as(t, server, "publisher")
	require.NoError(t, err)
	publish := func() error {
		return backend.ErrorAt(publisher.Publish(t.Context(), []*backend.Message{{Topic: "small"}}), 0)
	}
	for range 3 {
		require.NoError(t, publish())
		ds, err := src.Receive(t.Context(), 1, 0)
		require.NoError(t, err)
		require.NoError(t, src.Ack(t.Context(), backend.Lend(ds)))
	}
	for range 3 {
		require.ErrorIs(t, publish(), backend.ErrFull)
	}
	_, err = owner.Maintain(t.Context(), "small", "g")
	require.NoError(t, err)
	require.NoError(t, publish())
}

// A message larger than the bound of its topic is refused as too large, and removes nothing. When
// another process has raised the bound, it is stored.
func TestLargerThanTheTopic(t *testing.T) {
	t.Parallel()
	w := watch(t, newFixture(t, nats.Options{}))
	keep := backend.TopicSettings{Keep: time.Hour, MaxBytes: 64 << 10}
	w.declare("orders", backend.Declaration{Settings: keep})
	w.publish("orders", 10)
	w.settle(10)
	large := func() error {
		return backend.ErrorAt(w.b.Publish(t.Context(), []*backend.Message{{Topic: "orders", Payload: make([]byte, 65<<10)}}), 0)
	}
	require.ErrorIs(t, large(), backend.ErrTooLarge)
	w.topicHas(10, "removed for a message that cannot fit")
	other, err := nats.New(w.conn, nats.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	keep.MaxBytes = 1 << 20
	_, err = other.Declare(t.Context(), "orders", backend.Declaration{Settings: keep, Replace: true})
	require.NoError(t, err)
	require.NoError(t, large())
	w.topicHas(11, "the bound was raised")
}
