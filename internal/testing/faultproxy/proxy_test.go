package faultproxy_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server with a proxy in front; behind is a client without the proxy.
type rig struct {
	proxy  *faultproxy.Proxy
	server *redistest.Server
	behind *redis.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := redistest.Start(t)
	return &rig{proxy: faultproxy.New(t, s.Addr(), faultproxy.RESP), server: s, behind: s.Client(t)}
}

func newTLSRig(t *testing.T) *rig {
	t.Helper()
	s := redistest.Start(t, redistest.TLS())
	return &rig{proxy: faultproxy.New(t, s.Addr(), faultproxy.RESP), server: s}
}

func newSocketRig(t *testing.T) *rig {
	t.Helper()
	s := redistest.Start(t, redistest.Socket())
	return &rig{proxy: faultproxy.New(t, s.Socket(), faultproxy.RESP), server: s}
}

// client returns a client that retries nothing and sends only the test's commands, on one
// connection.
func (r *rig) client(t *testing.T, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{
		Addr: r.proxy.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1,
		ReadTimeout: 5 * time.Second,
	}
	for _, f := range change {
		f(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func add(ctx context.Context, c redis.Cmdable, stream string) error {
	return c.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"k", "v"}}).Err()
}

func happened(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("the reply was not dropped within 5 s")
	}
}

func pending(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

func TestCutBreaksConnectionsAndLetsNewOnesPass(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	require.Equal(t, 1, r.proxy.Connections())

	conn, err := net.Dial("tcp", r.proxy.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	b := make([]byte, 16)
	_, err = conn.Read(b)
	require.NoError(t, err)

	r.proxy.Cut()
	require.Equal(t, 0, r.proxy.Connections(), "connections after Cut")
	_, err = conn.Read(b)
	require.ErrorContains(t, err, "reset")
	_ = c.Ping(t.Context()).Err() // may find its connection broken
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestDropReplyToLosesOneReply(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t)
	done := r.proxy.DropReplyTo("xadd")
	require.NoError(t, c.Ping(t.Context()).Err(), "a command of another name")
	require.True(t, pending(done))

	require.Error(t, add(t.Context(), c, "s"), "the client whose reply is lost")
	happened(t, done)
	require.EqualValues(t, 1, r.behind.XLen(t.Context(), "s").Val(), "entries: it took effect once")
	require.NoError(t, add(t.Context(), c, "s"), "the next one")
	require.EqualValues(t, 2, r.behind.XLen(t.Context(), "s").Val())
}

func TestDropReplyToInAPipeline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn, err := net.Dial("tcp", r.proxy.Addr())
	require.NoError(t, err)
	defer conn.Close()
	done := r.proxy.DropReplyTo("XADD", "EVALSHA")
	_, err = conn.Write([]byte("SET a 1\r\nINCR a\r\nXADD s * k v\r\nINCR a\r\nINCR a\r\n"))
	require.NoError(t, err)
	b := make([]byte, 64)
	got := ""
	for {
		n, err := conn.Read(b)
		got += string(b[:n])
		if err != nil {
			break
		}
	}
	require.Equal(t, "+OK\r\n:2\r\n", got, "replies to what came before XADD")
	happened(t, done)
	require.Equal(t, "4", r.behind.Get(t.Context(), "a").Val(), "what came with it took effect")
	require.EqualValues(t, 1, r.behind.XLen(t.Context(), "s").Val())
}

func TestDropReplyOfACommandOverManyChunks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t)
	big := strings.Repeat("x", 1<<20)
	done := r.proxy.DropReply(func(b []byte) bool { return strings.Contains(string(b), "big") })
	require.Error(t, c.Set(t.Context(), "big", big, 0).Err())
	happened(t, done)
	require.EqualValues(t, len(big), r.behind.StrLen(t.Context(), "big").Val(), "it took effect whole")

	done = r.proxy.DropReplyTo("GET")
	require.Error(t, c.Get(t.Context(), "big").Err())
	happened(t, done)
	require.Equal(t, big, c.Get(t.Context(), "big").Val(), "a reply of 1 MiB that nobody drops")
}

func TestDropReplyWithoutRESP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.proxy = faultproxy.New(t, r.server.Addr())
	c := r.client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	done := r.proxy.DropReply(nil)
	require.Error(t, add(t.Context(), c, "s"))
	happened(t, done)
	require.EqualValues(t, 1, r.behind.XLen(t.Context(), "s").Val())
	require.Empty(t, r.proxy.Commands())
}

func TestDropReplyWaitsForAnAnswerThatTakesLong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t)
	done := r.proxy.DropReplyTo("BLPOP")
	failed := make(chan error, 1)
	go func() { failed <- c.BLPop(t.Context(), 4*time.Second, "l").Err() }()
	require.Eventually(t, func() bool { return r.proxy.Commands()["BLPOP"] == 1 }, 5*time.Second, time.Millisecond)
	time.Sleep(20 * time.Millisecond)
	require.True(t, pending(done), "dropped before the answer")
	require.NoError(t, r.behind.RPush(t.Context(), "l", "x").Err())
	require.Error(t, <-failed)
	happened(t, done)
	require.Zero(t, r.behind.LLen(t.Context(), "l").Val(), "the element is lost with the reply")
}

func TestDropReplyWaitsOnWhenItsConnectionEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	done := r.proxy.DropReplyTo("BLPOP", "XADD")
	raw, err := net.Dial("tcp", r.proxy.Addr())
	require.NoError(t, err)
	_, err = raw.Write([]byte("BLPOP l 4\r\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.proxy.Commands()["BLPOP"] == 1 }, 5*time.Second, time.Millisecond)
	raw.Close()
	require.Eventually(t, func() bool { return r.proxy.Connections() == 0 }, 5*time.Second, time.Millisecond)
	require.True(t, pending(done), "nothing was dropped")
	require.Error(t, add(t.Context(), r.client(t), "s"))
	happened(t, done)
}

func TestCountsCommandsAndRoundTrips(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	trips := r.proxy.RoundTrips()

	pipe := c.Pipeline()
	for i := range 100 {
		pipe.Set(t.Context(), fmt.Sprint(i), strings.Repeat("v", 10_000), 0)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, r.proxy.RoundTrips()-trips, int64(16), "a pipeline of 1 MB, which the server answers in parts")
	require.GreaterOrEqual(t, r.proxy.RoundTrips()-trips, int64(1))
	trips = r.proxy.RoundTrips()

	for i := range 100 {
		pipe.Get(t.Context(), fmt.Sprint(i))
	}
	_, err = pipe.Exec(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, r.proxy.RoundTrips()-trips, "round trips of a pipeline of 100")
	for range 10 {
		require.NoError(t, add(t.Context(), c, "s"))
	}
	require.EqualValues(t, 11, r.proxy.RoundTrips()-trips)
	require.Equal(t, 100, int(r.proxy.Commands()["SET"]))
	require.Equal(t, 100, int(r.proxy.Commands()["GET"]))
	require.Equal(t, 10, int(r.proxy.Commands()["XADD"]))
	sent, received := r.proxy.Bytes()
	require.Greater(t, sent, int64(1_000_000))
	require.Greater(t, received, int64(1_000_000))
}
