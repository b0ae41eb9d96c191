package redisstream_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/redisstream"
)

// TestMain runs the test binary as a member in a process of its own, if it is asked to. In
// the end it checks that no goroutine is left.
func TestMain(m *testing.M) {
	redis.SetLogger(&logged) // go-redis logs failed dials, and there are many here
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	// After a failed dial go-redis checks every second whether the server is back. It
	// notices up to a second after Close that it can stop.
	goleak.VerifyTestMain(tests{m, &logged}, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// tests runs the tests of the package. It fails if a password was logged.
type tests struct {
	*testing.M
	log *canaryLog
}

// Run runs the tests and returns the exit status.
func (m tests) Run() int {
	code := m.M.Run()
	if len(m.log.shown) > 0 {
		fmt.Fprintln(os.Stderr, "FAIL: logged:", m.log.shown)
		return max(code, 1)
	}
	return code
}

// dial returns a client that is closed when the test ends.
func dial(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 3})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// open returns a backend that is closed when the test ends.
func open(t testing.TB, client redis.UniversalClient, o redisstream.Options) *redisstream.Backend {
	b, err := redisstream.New(client, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

const (
	topic   = "orders"
	workers = "g"
	stream  = "bus:{orders}"
	lease   = 2 * time.Second
)

func config() backend.Config { return backend.Config{Topic: topic, Group: workers, Lease: lease} }

func attach(t testing.TB, b backend.Backend, c backend.Config) member {
	t.Helper()
	s, err := b.Attach(t.Context(), c)
	require.NoError(t, err)
	return s.(member)
}

// A member is a source with its verbs.
type member interface {
	backend.Source
	backend.Delayer
	backend.Extender
}

// batch makes n messages with the ids prefix-0, prefix-1 and so on.
func batch(prefix string, n int) []*backend.Message {
	ms := make([]*backend.Message, n)
	for i := range ms {
		id := fmt.Sprintf("%s-%d", prefix, i)
		ms[i] = &backend.Message{Topic: topic, ID: id, Payload: []byte("payload of " + id)}
	}
	return ms
}

// once sets Once of all messages.
func once(ms []*backend.Message) []*backend.Message {
	for _, m := range ms {
		m.Once = true
	}
	return ms
}

func publish(t testing.TB, b backend.Backend, ms []*backend.Message) {
	t.Helper()
	require.NoError(t, b.Publish(t.Context(), ms))
}

// receive receives n deliveries. It ignores errors as long as there is time.
func receive(t testing.TB, s backend.Source, n int) (ds []backend.Delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var last error
	for len(ds) < n {
		got, err := s.Receive(ctx, n-len(ds), 0)
		ds = append(ds, got...)
		if err != nil {
			last = err
			pause(10 * time.Millisecond)
		}
		require.NoError(t, ctx.Err(), "got %d of %d, last error %v", len(ds), n, last)
	}
	return ds
}

// nothing requires that no message is delivered for d.
func nothing(t testing.TB, s backend.Source, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	for ctx.Err() == nil {
		ds, err := s.Receive(ctx, 10, 0)
		require.Empty(t, ds)
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	}
}

// within returns a context that ends after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// name8 is the random part of a member's name.
func name8(i int) string {
	return fmt.Sprintf("aaaa%c%c%c%c", 'a'+i/17576%26, 'a'+i/676%26, 'a'+i/26%26, 'a'+i%26)
}

func pause(d time.Duration) { time.Sleep(d) }

// each calls f for the error of every message of a batch.
func each(err error, n int, f func(i int, err error)) {
	for i := range n {
		f(i, backend.ErrorAt(err, i))
	}
}

// stored returns the messages of the topic, all of them.
func stored(t testing.TB, b *redisstream.Backend) (all []backend.Message) {
	t.Helper()
	for from := ""; ; {
		ms, err := b.Read(within(t, 30*time.Second), topic, backend.StartAfter(from), 1000)
		require.NoError(t, err)
		if len(ms) == 0 {
			return all
		}
		all = append(all, ms...)
		from = ms[len(ms)-1].Position
	}
}
