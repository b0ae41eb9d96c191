package redisstream_test

import (
	"context"
	"errors"
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
	"github.com/seed41896749/eventbus/internal/testing/proxyrig"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// topicOn returns a topic whose stream is on the node of a cluster with this index.
func topicOn(t testing.TB, c *redistest.Cluster, node int) string {
	for n := range 1000 {
		topic := fmt.Sprintf("topic-%d", n)
		slot, err := c.Nodes()[0].Client(t).ClusterKeySlot(t.Context(), "bus:{"+topic+"}").Result()
		require.NoError(t, err)
		if int(slot)*3/16384 == node {
			return topic
		}
	}
	require.FailNow(t, "no topic")
	return ""
}

// publishTo publishes an event to each topic, in one call. It returns the error of each.
func publishTo(t testing.TB, b backend.Backend, limit time.Duration, topics ...string) (errs []error) {
	ms := make([]*backend.Message, len(topics))
	for i, topic := range topics {
		ms[i] = &backend.Message{Topic: topic, ID: "x"}
	}
	err := b.Publish(within(t, limit), ms)
	for i := range ms {
		errs = append(errs, backend.ErrorAt(err, i))
	}
	return errs
}

// A dead master stops only its own topics, even in a program that starts after its death. When
// the master is back, its topics work and its settings are checked.
func TestDeadMasterStopsOnlyItsTopics(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for _, node := range cluster.Nodes() {
		require.NoError(t, node.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	healthy, dead, deadToo := topicOn(t, cluster, 0), topicOn(t, cluster, 1), topicOn(t, cluster, 1)+"x"
	for n := 0; slotNode(t, cluster, deadToo) != 1; n++ {
		deadToo = fmt.Sprintf("%s-%d", dead, n)
	}
	cluster.Nodes()[1].Kill()
	b, err := openURL(t, "redis+cluster://"+cluster.Addrs()[0])
	require.NoError(t, err)
	errs := publishTo(t, b, 10*time.Second, dead, healthy, deadToo)
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[0], backend.ErrUnavailable)
	require.ErrorIs(t, errs[2], backend.ErrUnavailable)
	c := config()
	c.Topic = healthy
	s := attach(t, b, c)
	publishTo(t, b, 10*time.Second, healthy)
	require.Len(t, receive(t, s, 1), 1)
	c.Topic = dead
	_, err = b.Attach(within(t, 10*time.Second), c)
	require.ErrorIs(t, err, backend.ErrUnavailable)

	cluster.Nodes()[1].Run()
	require.NoError(t, cluster.Nodes()[1].Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	eventually(t, "its policy is refused", func() bool { return errors.Is(publishTo(t, b, 10*time.Second, dead)[0], backend.ErrRefused) })
	require.NoError(t, cluster.Nodes()[1].Client(t).ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	eventually(t, "its topic works", func() bool { return publishTo(t, b, 10*time.Second, dead)[0] == nil })
}

func slotNode(t testing.TB, c *redistest.Cluster, topic string) int {
	slot, err := c.Nodes()[0].Client(t).ClusterKeySlot(t.Context(), "bus:{"+topic+"}").Result()
	require.NoError(t, err)
	return int(slot) * 3 / 16384
}

// A master that hangs does not stop a program that starts: Open ends, and topics of other
// masters work at once.
func TestFrozenMasterStopsOnlyItsTopics(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for _, node := range cluster.Nodes() {
		require.NoError(t, node.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	healthy, frozen := topicOn(t, cluster, 0), topicOn(t, cluster, 1)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()[:1]})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Ping(t.Context()).Err())
	b := open(t, client, redisstream.Options{})
	thaw := cluster.Nodes()[1].Freeze()
	defer thaw()
	require.NoError(t, publishTo(t, b, 20*time.Second, healthy)[0])
	require.ErrorIs(t, publishTo(t, b, time.Second, frozen)[0], backend.ErrUnavailable)
	start := time.Now()
	require.NoError(t, publishTo(t, b, 20*time.Second, healthy)[0])
	require.Less(t, time.Since(start), 3*time.Second)
	thaw()
	eventually(t, "its topic works", func() bool { return publishTo(t, b, 10*time.Second, frozen)[0] == nil })
}

// A replica that takes over is used within seconds, whether its master died or hangs.
func TestReplicaThatTakesOverIsUsed(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*redistest.Server) func(){
		"killed": func(s *redistest.Server) func() { s.Kill(); return func() {} },
		"frozen": (*redistest.Server).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t)
			replica := cluster.AddReplica(t, 1)
			topic := topicOn(t, cluster, 1)
			b, err := openURL(t, "redis+cluster://"+cluster.Addrs()[0])
			require.NoError(t, err)
			require.NoError(t, publishTo(t, b, 10*time.Second, topic)[0])
			defer fail(cluster.Nodes()[1])()
			eventually(t, "the replica is the master", func() bool {
				return replica.Client(t).Do(t.Context(), "role").Val().([]any)[0] == "master"
			})
			start := time.Now()
			eventually(t, "the topic works again", func() bool { return publishTo(t, b, 10*time.Second, topic)[0] == nil })
			require.Less(t, time.Since(start), 25*time.Second, "the client asks for the topology by itself after a minute")
			t.Logf("after %v", time.Since(start))
		})
	}
}

// Connections to a Cluster node that no call has used for a while are closed, even if their
// session is idle. Otherwise they stay open after the node has left the Cluster.
func TestUnusedNodesHaveNoConnections(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for _, node := range cluster.Nodes() {
		node.User(t, "app", "secret", "+@all", "~*")
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "app", Password: "secret", PoolSize: 1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := open(t, client, redisstream.Options{})
	used, unused := topicOn(t, cluster, 0), topicOn(t, cluster, 1)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			for range 20 {
				_ = b.Publish(t.Context(), []*backend.Message{{Topic: unused}})
			}
		})
	}
	calls.Wait()
	admin := cluster.Nodes()[1].Client(t)
	before := connections(t, admin, "app")
	require.Greater(t, before, 1)
	b.Forget()
	b.Age()
	require.NoError(t, publishTo(t, b, 10*time.Second, used)[0])
	eventually(t, "only the client's own connection is left", func() bool { return connections(t, admin, "app") <= 1 })
	require.NoError(t, publishTo(t, b, 10*time.Second, unused)[0])
}

// A client that reads from replicas is refused, by the name of its option.
func TestClientThatReadsFromReplicasIsRefused(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*redis.ClusterOptions{
		"ReadOnly": {ReadOnly: true}, "RouteByLatency": {RouteByLatency: true}, "RouteRandomly": {RouteRandomly: true},
	} {
		client := redis.NewClusterClient(o)
		_, err := redisstream.New(client, redisstream.Options{})
		require.ErrorContains(t, err, "ClusterOptions."+name+",")
		require.NoError(t, client.Close())
	}
}

// While a slot moves, a server refuses scripts of which it has only some keys. The driver
// does not take such a refusal, behind an ASK, for success.
func TestRefusedBehindASK(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, proxyrig.Declare(t.Context(), b, "warm")) // the scripts and the servers are known
	m := newMover(t, cluster, "bus:{orders}")
	m.begin()
	_, err = b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Minute, MaxInFlight: 10})
	groups, listErr := b.Groups(t.Context(), "orders")
	t.Logf("attach: %v; groups: %v, %v", err, groups, listErr)
	if err == nil {
		require.Equal(t, []string{"g"}, groups, "Attach succeeded, so the group exists")
	}
	err = b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "x", Once: true}})
	t.Logf("publish: %v", err)
	if err != nil {
		require.NotContains(t, err.Error(), "malformed")
	}
}

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
