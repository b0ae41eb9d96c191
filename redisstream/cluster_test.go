package redisstream_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
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

// A master that died stops only its own topics, also in a program that starts after its
// end. When the master is back its topics work, and its settings are looked at.
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

// Connections to a Cluster node that no call has used for a while are closed, also if their
// wire is idle. Otherwise they stay open after the node has left the Cluster.
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
