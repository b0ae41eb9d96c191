package redistest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// Cluster is a Redis Cluster of three masters without replicas, each with a third
// of the slots.
type Cluster struct {
	nodes []*Server
}

// StartCluster starts a cluster and returns when each node reports that all slots are
// served. A node that is silent for a second counts as failed.
func StartCluster(t testing.TB, o ...Option) *Cluster {
	t.Helper()
	c := &Cluster{}
	o = append(o, clustered, lines("cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 1000",
		"cluster-announce-ip 127.0.0.1"))
	const size = 3
	var clients []*redis.Client
	for i := range size {
		s := Start(t, o...)
		c.nodes = append(c.nodes, s)
		client := s.Client(t)
		clients = append(clients, client)
		ctx := t.Context()
		check := func(what string, err error) {
			if err != nil {
				t.Fatalf("redistest: cluster: %s: %v", what, err)
			}
		}
		check("slots", client.ClusterAddSlotsRange(ctx, i*slots/size, (i+1)*slots/size-1).Err())
		check("epoch", client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if i > 0 {
			check("meet", client.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(c.nodes[0].port)).Err())
		}
	}
	for _, client := range clients {
		until(t, "a node serves the cluster", func() error {
			info, err := client.ClusterInfo(t.Context()).Result()
			if err != nil {
				return err
			}
			for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d", slots), fmt.Sprintf("cluster_known_nodes:%d", size)} {
				if !strings.Contains(info, want) {
					return fmt.Errorf("no %s in CLUSTER INFO", want)
				}
			}
			return nil
		})
	}
	return c
}

// clustered makes the server a node of a cluster.
func clustered(s *settings) { s.clustered = true }

// Nodes returns the three servers.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Addrs returns the addresses of the nodes, host:port.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// Client returns a client of the whole cluster, closed when the test ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { client.Close() })
	return client
}

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}
