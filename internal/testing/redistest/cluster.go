package redistest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// Cluster is a Redis Cluster of three masters, each with a third of the slots. It has no
// replicas until AddReplica.
type Cluster struct {
	nodes   []*Server
	options []Option
}

// StartCluster starts a cluster, and returns when each node reports that all slots are served. A
// node that is silent for a second counts as failed.
func StartCluster(t testing.TB, o ...Option) *Cluster {
	t.Helper()
	c := &Cluster{}
	o = append(o, clustered, lines("cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 1000",
		"cluster-announce-ip 127.0.0.1"))
	c.options = o
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

// Client returns a client of the whole cluster, which is closed when the test ends.
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

// AddReplica starts a replica of the node with this index, and returns when the replica has the
// data and all nodes know it. The cluster promotes it when its master has been silent for some
// seconds.
func (c *Cluster) AddReplica(t testing.TB, node int) *Server {
	t.Helper()
	s := Start(t, c.options...)
	client, master := s.Client(t), c.nodes[node].Client(t)
	id, err := master.Do(t.Context(), "CLUSTER", "MYID").Text()
	if err == nil {
		err = client.ClusterMeet(t.Context(), "127.0.0.1", fmt.Sprint(c.nodes[node].port)).Err()
	}
	if err != nil {
		t.Fatalf("redistest: cluster: replica: %v", err)
	}
	until(t, "the replica follows its master", func() error { return client.ClusterReplicate(t.Context(), id).Err() })
	for _, each := range append([]*Server{s}, c.nodes...) {
		known := each.Client(t)
		until(t, "a node knows the replica", func() error {
			list, err := known.ClusterNodes(t.Context()).Result()
			if err == nil && !strings.Contains(list, "slave "+id) {
				err = fmt.Errorf("no replica of %s in CLUSTER NODES", id)
			}
			return err
		})
	}
	until(t, "the replica has the data", func() error {
		info, err := client.Info(t.Context(), "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = fmt.Errorf("the link is not up")
		}
		return err
	})
	return s
}
