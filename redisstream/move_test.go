package redisstream_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// A mover moves a slot of a cluster as redis-cli does, in steps.
type mover struct {
	t        *testing.T
	slot     int
	from, to *redis.Client
	others   []*redis.Client
}

func newMover(t *testing.T, c *redistest.Cluster, key string) *mover {
	m := &mover{t: t}
	for i, node := range c.Nodes() {
		client := node.Client(t)
		slot, err := client.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		m.slot = int(slot)
		switch size := 16384; {
		case i*size/3 <= m.slot && m.slot < (i+1)*size/3:
			m.from = client
		case m.to == nil:
			m.to = client
		default:
			m.others = append(m.others, client)
		}
	}
	return m
}

func (m *mover) id(c *redis.Client) string {
	id, err := c.Do(m.t.Context(), "cluster", "myid").Text()
	require.NoError(m.t, err)
	return id
}

func (m *mover) set(c *redis.Client, args ...any) {
	require.NoError(m.t, c.Do(m.t.Context(), append([]any{"cluster", "setslot", m.slot}, args...)...).Err())
}

// begin starts the move of the slot. From then on a client asks the other server for
// missing keys.
func (m *mover) begin() {
	m.set(m.to, "importing", m.id(m.from))
	m.set(m.from, "migrating", m.id(m.to))
}

// move moves all keys.
func (m *mover) move() {
	host, port, err := net.SplitHostPort(m.to.Options().Addr)
	require.NoError(m.t, err)
	for {
		keys, err := m.from.ClusterGetKeysInSlot(m.t.Context(), m.slot, 10).Result()
		require.NoError(m.t, err)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			require.NoError(m.t, m.from.Do(m.t.Context(), "migrate", host, port, key, 0, 5000).Err())
		}
	}
}

// end gives the slot to its new owner.
func (m *mover) end() {
	for _, c := range append([]*redis.Client{m.to, m.from}, m.others...) {
		m.set(c, "node", m.id(m.to))
	}
}

// A slot that moves under load loses no event, and no event is out of order. There are
// three phases. At first the keys are still in the old place, and scripts are refused if
// some of their keys do not exist. Then the keys have moved (ASK). At last the slot has
// moved too (MOVED).
func TestSlotThatMovesLosesNothing(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	bus := eventbustest.On(t, b, eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) })
	var mu sync.Mutex
	var handled []string
	seen := map[string]bool{}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(handled)
	}
	o := eventbus.SubscribeOptions{Group: workers, Concurrency: 8, Lease: lease}
	_, err = bus.Subscribe(t.Context(), topic, o, func(_ context.Context, d *eventbus.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if !seen[d.ID] {
			seen[d.ID] = true
			handled = append(handled, d.ID)
		}
		return nil
	})
	require.NoError(t, err)
	var stored []string
	publishSome := func(n int) {
		for range n {
			id := fmt.Sprint(len(stored))
			require.NoError(t, bus.Publish(within(t, 20*time.Second), topic, &eventbus.Event{ID: id, Key: "k"}))
			stored = append(stored, id)
		}
	}
	publishSome(100)
	m := newMover(t, cluster, stream)
	m.begin()
	publishSome(300)
	m.move()
	publishSome(300)
	m.end()
	publishSome(300)
	eventually(t, "all are handled", func() bool { return count() >= len(stored) })
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, stored, handled, "in order, each for the first time")
	require.Equal(t, int64(len(stored)), m.to.XInfoStream(t.Context(), stream).Val().EntriesAdded, "none was stored twice")
}

// A call may be refused twice: a server names the new owner of its slot, and the new owner
// does not know the script.
func TestMovedToAServerWithoutTheScript(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	publish(t, b, once(batch("before", 1)))
	m := newMover(t, cluster, stream)
	m.begin()
	m.move()
	m.end()
	require.NoError(t, m.to.ScriptFlush(t.Context()).Err())
	other := &backend.Message{Topic: "other", ID: "other", Once: true} // with its call, the driver sends a pipeline
	require.NoError(t, b.Publish(t.Context(), append(once(batch("moved", 1)), other)))
}
