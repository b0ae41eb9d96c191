package natstest

import (
	"fmt"
	"strings"
	"testing"
)

// A Cluster is three servers that share their streams.
type Cluster struct{ servers []*Server }

// StartCluster starts a cluster, which ends with the test.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	var routes []string
	var ports []int
	for range 3 {
		port := freePort(t)
		ports = append(ports, port)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	for _, port := range ports {
		c.servers = append(c.servers, newServer(t, "--cluster_name", "c", "--cluster", fmt.Sprintf("nats://127.0.0.1:%d", port), "--routes", strings.Join(routes, ",")))
	}
	c.Run()
	return c
}

// Servers are the three.
func (c *Cluster) Servers() []*Server { return c.servers }

// Run starts those that do not run, and returns when JetStream answers on all.
func (c *Cluster) Run() {
	for _, s := range c.servers {
		if !s.Runs() {
			s.start()
		}
	}
	for _, s := range c.servers {
		s.await()
	}
}
