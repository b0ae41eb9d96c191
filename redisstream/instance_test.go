package redisstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/internal/testing/testproc"
	"github.com/seed41896749/eventbus/redisstream"
)

const (
	instance = "shop-0"
	ran      = "ran" // a list of the server: the process, key and ID of each run
	keys     = 16
)

// work is a process of a bus with an Instance. It notes each run in the list ran.
func work(ctx context.Context, client *redis.Client, told *bufio.Scanner) error {
	b, err := redisstream.New(client, redisstream.Options{})
	if err != nil {
		return err
	}
	bus, err := eventbus.New(b, eventbus.Options{Instance: instance})
	if err != nil {
		return err
	}
	incarnation := strconv.FormatInt(time.Now().UnixNano(), 10)
	_, err = bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{Group: workers, Concurrency: 8, Lease: 30 * time.Second}, func(ctx context.Context, d *eventbus.Delivery) error {
		return client.RPush(ctx, ran, incarnation+" "+d.Key+" "+d.ID).Err()
	})
	if err != nil {
		return err
	}
	fmt.Println("working")
	told.Scan()
	return nil
}

// A process is killed at full speed, and holds events for a lease of 30 seconds. The next
// incarnation of its instance handles all of them at once, and each key in order.
func TestKilledInstanceWaitsForNoLease(t *testing.T) {
	t.Parallel()
	const events = 5000
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	bus, err := eventbus.New(open(t, client, redisstream.Options{}), eventbus.Options{})
	require.NoError(t, err)
	es := make([]*eventbus.Event, events)
	for i := range es {
		es[i] = &eventbus.Event{ID: strconv.Itoa(i / keys), Key: strconv.Itoa(i % keys), Payload: []byte("event")}
	}
	require.NoError(t, bus.Publish(t.Context(), topic, es...))

	first := start(t, "work", server)
	require.Eventually(t, func() bool { return client.LLen(t.Context(), ran).Val() > events/10 }, 30*time.Second, time.Millisecond)
	first.signal(t, syscall.SIGKILL)
	held, err := client.XPending(t.Context(), stream, workers).Result()
	require.NoError(t, err)
	require.NotZero(t, held.Count, "the killed process held events")
	began := time.Now()
	start(t, "work", server)
	require.Eventually(t, func() bool {
		left, err := client.XPending(t.Context(), stream, workers).Result()
		handled := map[string]bool{}
		for _, run := range client.LRange(t.Context(), ran, 0, -1).Val() {
			_, event, _ := strings.Cut(run, " ")
			handled[event] = true
		}
		return err == nil && left.Count == 0 && len(handled) == events
	}, 20*time.Second, 50*time.Millisecond, "no event waits for its lease of 30 seconds")
	t.Logf("held when killed: %d; all handled after %v", held.Count, time.Since(began))

	last := map[string]int{} // by process and key
	for _, run := range client.LRange(t.Context(), ran, 0, -1).Val() {
		f := strings.Fields(run)
		of, n := f[0]+" "+f[1], 0
		n, err = strconv.Atoi(f[2])
		require.NoError(t, err)
		if before, again := last[of]; again {
			require.Equal(t, before+1, n, "the events of a key are handled in order, in run %q", run)
		}
		last[of] = n
	}
}

// next returns the config of a member of the named incarnation.
func next(incarnation string) backend.Config {
	c := config()
	c.Instance, c.Incarnation, c.Lease = instance, incarnation, 30*time.Second
	return c
}

// read is a member of an instance that receives until it fails.
func read(ctx context.Context, client *redis.Client, _ *bufio.Scanner) error {
	b, err := redisstream.New(client, redisstream.Options{})
	if err != nil {
		return err
	}
	s, err := b.Attach(ctx, next("first"))
	for err == nil {
		fmt.Println("reading")
		var ds []backend.Delivery
		ds, err = s.Receive(ctx, 10, 0)
		for i := range ds {
			fmt.Println("got", ds[i].ID)
		}
	}
	fmt.Println("replaced", errors.Is(err, backend.ErrReplaced))
	return nil
}

// A process is frozen while it waits for messages. The server gives it a message after the
// next incarnation of its instance has attached. The next incarnation gets it soon, and the process learns
// at once that it was replaced.
func TestReadOfFrozenInstanceKeepsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	c := start(t, "read", server)
	for range 3 { // it has nothing to take, and waits
		c.expect(t, "reading")
	}
	c.signal(t, testproc.Freeze)
	s := attach(t, b, next("second"))
	publish(t, b, batch("a", 3))
	began := time.Now()
	ds := receive(t, s, 3)
	require.Less(t, time.Since(began), 10*time.Second)
	for i := range ds {
		require.Equal(t, fmt.Sprintf("a-%d", i), ds[i].ID)
	}
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	c.signal(t, testproc.Thaw)
	for {
		line := <-c.lines
		if line == "reading" {
			continue
		}
		require.Equal(t, "replaced true", line)
		break
	}
	nothing(t, s, lease/4)
}

// Attach gives back any number of entries, by short runs of its script. The rest in the server
// expires.
func TestInstanceLeavesLittleBehind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	b := open(t, client, redisstream.Options{})
	const messages = 3500
	publish(t, b, batch("a", messages))
	for n := range 4 {
		s := attach(t, b, next(strconv.Itoa(n)))
		ds := receive(t, s, messages)
		for i := range ds {
			require.Equal(t, fmt.Sprintf("a-%d", i), ds[i].ID)
			require.Equal(t, n+1, ds[i].Attempt)
		}
	}
	consumers, err := client.XInfoConsumers(t.Context(), stream, workers).Result()
	require.NoError(t, err)
	require.Len(t, consumers, 2, "the last incarnation and parked")
	var marks []string
	for _, key := range client.Keys(t.Context(), "*:instance:*").Val() {
		marks = append(marks, key)
		left := client.PTTL(t.Context(), key).Val()
		require.True(t, left > time.Hour && left <= 24*time.Hour, "%s lives for %v", key, left)
	}
	require.Equal(t, []string{"bus:{orders}:delayed:g:instance:shop-0"}, marks)
}
