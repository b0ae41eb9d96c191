package natstest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Cluster is three servers that share their streams.
type Cluster struct{ servers []*Server }

// StartCluster starts a cluster, which ends with the test. It returns when all three
// servers replicate streams.
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
	c.agree(t)
	return c
}

// steady is how long a new cluster must replicate without an error.
const steady = time.Second

// agree waits until the servers have replicated streams without an error for the time steady. In
// a new cluster that takes seconds: each server answers before the servers know each other.
func (c *Cluster) agree(t testing.TB) {
	t.Helper()
	var since time.Time
	for deadline := time.Now().Add(startLimit); since.IsZero() || time.Since(since) < steady; <-time.After(steady / 5) {
		switch err := c.share(t); {
		case err == nil && since.IsZero():
			since = time.Now()
		case err != nil && time.Now().After(deadline):
			t.Fatalf("natstest: the cluster stores nothing: %v", err)
		case err != nil:
			since = time.Time{}
		}
	}
}

// share creates a stream with three replicas and deletes it, or returns the error.
func (c *Cluster) share(t testing.TB) error {
	conn, err := natsgo.Connect(c.servers[0].URL(), Client(t))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	const name = "agreed"
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: len(c.servers)}); err != nil {
		return err
	}
	if _, err := js.Publish(ctx, name, nil); err != nil {
		return err
	}
	return js.DeleteStream(ctx, name)
}

// Servers returns the three servers.
func (c *Cluster) Servers() []*Server { return c.servers }

// Run starts the servers that do not run, and returns when JetStream answers on each.
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
