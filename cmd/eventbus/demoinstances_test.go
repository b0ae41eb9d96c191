//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// Instances that each get every event come and go, and a third of them is killed. None misses an
// event while it lives. Their groups hold nothing back for longer than ten leases, and nothing is
// left of them. EVENTBUS_INSTANCES is how many live at the same time (8), and
// EVENTBUS_INSTANCES_SECONDS for how long instances come and go (12).
func TestDemoInstances(t *testing.T) {
	t.Parallel()
	n, seconds := 8, 12
	for name, value := range map[string]*int{"EVENTBUS_INSTANCES": &n, "EVENTBUS_INSTANCES_SECONDS": &seconds} {
		if v := os.Getenv(name); v != "" {
			var err error
			*value, err = strconv.Atoi(v)
			require.NoError(t, err)
		}
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if seconds <= 12 {
				t.Parallel()
			}
			demoInstances(t, k, n, time.Duration(seconds)*time.Second)
		})
	}
}

const (
	perSecond     = 50 // events
	instanceLease = time.Second
	heldBack      = 10*instanceLease + 12*time.Second // ten leases, and two turns of Maintain
)

// A crowd is the instances of one run.
type crowd struct {
	t   *testing.T
	url string

	live           sync.WaitGroup
	started        atomic.Int64
	killed, missed atomic.Int64
	received       atomic.Int64
}

func demoInstances(t *testing.T, k kind, n int, over time.Duration) {
	url := k.start(t).URL()
	b := openBackend(t, k.driver, url)
	bus, err := eventbus.New(openBackend(t, k.driver, url), eventbus.Options{})
	require.NoError(t, err)
	// These groups live longer than the instances: one reads the topic, so that it is trimmed, and
	// one reads another topic.
	for _, topic := range []string{"prices", "other"} {
		_, err = bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "stays", Concurrency: 4}, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
	}
	before := leftovers(t, k, url)
	ctx, stop := context.WithTimeout(t.Context(), over)
	defer stop()
	c := &crowd{t: t, url: url}
	deepest := c.publish(ctx, bus, b)
	for range n {
		c.live.Go(func() {
			for ctx.Err() == nil {
				c.instance(ctx, over)
			}
		})
	}
	c.live.Wait()
	most := <-deepest
	ended := time.Now()
	for {
		groups, err := b.(backend.Admin).Groups(t.Context(), "prices")
		require.NoError(t, err)
		s, err := backend.StatsOf(t.Context(), b, "prices", "stays")
		require.NoError(t, err)
		if len(groups) == 1 && s.Lag+s.InFlight+s.Delayed == 0 {
			break
		}
		require.Less(t, time.Since(ended), heldBack+10*time.Second, "the topic has the groups %v and %+v", groups, s)
		time.Sleep(200 * time.Millisecond)
	}
	took := time.Since(ended).Round(100 * time.Millisecond)
	require.NoError(t, bus.Shutdown(t.Context()))
	fmt.Fprintf(t.Output(), "%s: %d instances, %d killed; %d events received, %d missed; at most %d events kept; all groups gone %v after the last instance\n",
		k.name, c.started.Load(), c.killed.Load(), c.received.Load(), c.missed.Load(), most, took)
	require.Zero(t, c.missed.Load())
	require.Positive(t, c.received.Load())
	const late = heldBack + 5*time.Second + time.Minute // on Redis a topic keeps all events for a minute after its first group was made
	require.Less(t, most, int64(perSecond*late/time.Second), "settled events are removed, at most %v late", late)
	require.Equal(t, before, leftovers(t, k, url), "nothing is left")
}

// publish publishes numbers in the topic prices until ctx ends, 50 a second. The channel gets the
// greatest depth of the topic.
func (c *crowd) publish(ctx context.Context, bus *eventbus.Bus, b backend.Backend) <-chan int64 {
	deepest := make(chan int64, 1)
	c.live.Go(func() {
		most := int64(0)
		for i, tick := 0, time.NewTicker(time.Second/perSecond); ctx.Err() == nil; i++ {
			<-tick.C
			if err := bus.Publish(context.WithoutCancel(ctx), "prices", &eventbus.Event{ID: strconv.Itoa(i)}); err != nil {
				c.t.Errorf("publish: %v", err)
			}
			if i%perSecond == 0 {
				if s, err := backend.StatsOf(context.WithoutCancel(ctx), b, "prices", "stays"); err == nil {
					most = max(most, s.Depth)
				}
			}
		}
		deepest <- most
	})
	return deepest
}

// instance runs a process that gets every event, for a while, and checks that it has missed none
// between its first and its last one.
func (c *crowd) instance(ctx context.Context, over time.Duration) {
	c.started.Add(1)
	cmd := process(c.t, "sub", "prices", "--group", eventbus.EachInstance, "--lease", instanceLease.String(), "--url", c.url)
	cmd.Stderr = c.t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Errorf("an instance does not start: %v", err)
		return
	}
	kill := rand.IntN(3) == 0
	life, cancel := context.WithTimeout(ctx, over/6+rand.N(over/3))
	defer context.AfterFunc(life, func() { c.end(cmd, kill) })()
	defer cancel()
	seen, lowest, highest := map[int]bool{}, -1, -1
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e struct{ ID string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the last line of a killed process may be cut short
		}
		i, err := strconv.Atoi(e.ID)
		if err != nil {
			continue
		}
		if seen[i] = true; lowest < 0 || i < lowest {
			lowest = i
		}
		highest = max(highest, i)
	}
	_ = cmd.Wait() // a killed process ends with an error
	c.received.Add(int64(len(seen)))
	if kill { // an event whose lease was lost on a busy machine may have been on its way again
		highest -= int(2 * perSecond * instanceLease / time.Second)
	}
	for i := max(lowest, 0); i < highest; i++ {
		if !seen[i] {
			c.missed.Add(1)
		}
	}
}

func (c *crowd) end(cmd *exec.Cmd, kill bool) {
	if kill {
		c.killed.Add(1)
		_ = cmd.Process.Kill()
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
}

// leftovers lists the keys of a Redis server, or the streams and consumers of a NATS server.
func leftovers(t *testing.T, k kind, url string) map[string]bool {
	all := map[string]bool{}
	if k.name == "redis" {
		o, err := redis.ParseURL(url)
		require.NoError(t, err)
		client := redis.NewClient(o)
		defer client.Close()
		keys, err := client.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		for _, key := range keys {
			if client.TTL(t.Context(), key).Val() < 0 { // others end by themselves
				all[key] = true
			}
		}
		delete(all, "bus:{prices}:trimmed") // the count of trimmed events begins with the first one
		return all
	}
	conn, err := natsgo.Connect(url)
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		all[info.Config.Name] = true
		stream, err := js.Stream(t.Context(), info.Config.Name)
		require.NoError(t, err)
		for name := range stream.ConsumerNames(t.Context()).Name() {
			all[info.Config.Name+"/"+name] = true
		}
	}
	require.NoError(t, streams.Err())
	return all
}
