package redisstream

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

// counted is a client of a server, and the number of its connections so far.
func counted(t *testing.T, o *redis.Options, server *redistest.Server) (*redis.Client, *atomic.Int64) {
	var dials atomic.Int64
	o.Addr = server.Addr()
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, &dials
}

func ping(t *testing.T, w *wire) {
	t.Helper()
	c := &call{args: []any{"ping"}}
	w.send(t.Context(), 0, c)
	require.NoError(t, c.err)
	p := c.reply.parse()
	require.Equal(t, "PONG", string(p.bulk()))
}

// The first call on a connection is go-redis', all others are the wire's own.
func TestCallsGoStraight(t *testing.T) {
	t.Parallel()
	client, dials := counted(t, &redis.Options{}, redistest.Start(t))
	w := newWire(client, time.Second)
	defer func() { require.NoError(t, w.close()) }()
	require.Nil(t, w.ready())
	for range 3 {
		ping(t, w)
		require.NotNil(t, w.ready())
		require.NoError(t, w.client.Ping(t.Context()).Err(), "go-redis can use it too")
	}
	require.Equal(t, int64(1), dials.Load())
}

// A busy machine is not a server that has gone: whoever is to look at a connection
// may come to it late.
func TestLateLookIsNoEnd(t *testing.T) {
	t.Parallel()
	client, dials := counted(t, &redis.Options{}, redistest.Start(t))
	dial := client.Options().Dialer
	client.Options().Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return lateConn{c.(*net.TCPConn)}, nil
	}
	w := newWire(client, time.Second)
	defer func() { require.NoError(t, w.close()) }()
	for range 3 {
		ping(t, w)
		require.NotNil(t, w.ready())
	}
	require.Equal(t, int64(1), dials.Load())
}

// A lateConn is looked at late.
type lateConn struct{ *net.TCPConn }

func (c lateConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.TCPConn.SyscallConn()
	return lateRaw{raw}, err
}

type lateRaw struct{ syscall.RawConn }

func (r lateRaw) Read(f func(uintptr) bool) error {
	time.Sleep(2 * unwatched)
	return r.RawConn.Read(f)
}

// An error reply is an answer: the connection stays, unless the server has become
// a replica.
func TestErrorRepliesGoStraight(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, dials := counted(t, &redis.Options{}, server)
	w := newWire(client, time.Second)
	defer func() { require.NoError(t, w.close()) }()
	ping(t, w)
	wrong, right := &call{args: []any{"nonsense"}}, &call{args: []any{"ping"}}
	w.send(t.Context(), 0, wrong, right)
	require.ErrorIs(t, wrong.err, backend.ErrRefused)
	require.False(t, wrong.unanswered)
	require.NoError(t, right.err)
	forgotten := &call{args: publishScript.args("bus:{a}"), script: &publishScript}
	forgotten.args = append(forgotten.args, 0, 1000)
	w.send(t.Context(), 0, forgotten, &call{args: []any{"ping"}})
	require.NoError(t, forgotten.err, "it is made again with the text")
	require.Equal(t, int64(1), dials.Load())

	require.NoError(t, client.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	before := dials.Load()
	c := &call{args: []any{"xadd", "a", "*", "b", "c"}}
	w.send(t.Context(), 0, c)
	require.ErrorIs(t, c.err, backend.ErrUnavailable)
	require.Nil(t, w.ready())
	ping(t, w)
	require.Equal(t, before+1, dials.Load())
}

// A connection is used no longer than the client that was lent allows.
func TestConnectionsGrowOld(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const limit = 50 * time.Millisecond
	for name, o := range map[string]*redis.Options{"idle": {ConnMaxIdleTime: limit}, "life": {ConnMaxLifetime: limit}} {
		t.Run(name, func(t *testing.T) {
			client, dials := counted(t, o, server)
			w := newWire(client, time.Second)
			defer func() { require.NoError(t, w.close()) }()
			ping(t, w)
			first := w.line.Load()
			require.NotNil(t, first)
			time.Sleep(limit)
			require.Nil(t, w.ready(), "it is not for the wire to use")
			ping(t, w)
			require.Greater(t, dials.Load(), int64(1), "nor for go-redis")
			require.NotSame(t, first, w.line.Load())
		})
	}
}

// Whoever says more than was asked for is not trusted again.
func TestWhoSaysMoreIsNotTrusted(t *testing.T) {
	t.Parallel()
	w := newWire(speaker(t, []byte("*-1\r\n+more\r\n")), time.Second)
	defer func() { require.NoError(t, w.close()) }()
	for range 2 {
		other := &call{args: []any{"ping"}}
		w.send(t.Context(), 0, other)
		require.NoError(t, other.err)
		p := other.reply.parse()
		require.Equal(t, "OK", string(p.bulk()))
	}
	c := &call{args: []any{"xreadgroup"}}
	w.send(t.Context(), 0, c)
	require.NoError(t, c.err)
	require.Equal(t, "*-1\r\n", string(c.reply.raw))
	require.Nil(t, w.ready())
}

// A reply that is none, or the word that another server is to be spoken to, ends a
// connection.
func TestConnectionsThatAreLeft(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"a string without an end":    "$3\r\nabcXY",
		"a large one":                "$5000\r\n" + strings.Repeat("a", 5000) + "\nX",
		"moved to where we are":      "-MOVED 1 127.0.0.1:6379\r\n",
		"a master that is a replica": "-READONLY You can't write against a read only replica.\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(speaker(t, []byte(answer)), time.Second)
			defer func() { require.NoError(t, w.close()) }()
			w.send(t.Context(), 0, &call{args: []any{"ping"}})
			require.NotNil(t, w.ready())
			c := &call{args: []any{"xreadgroup"}}
			w.send(t.Context(), 0, c)
			require.Error(t, c.err)
			require.Nil(t, w.ready())
		})
	}
}

// So does a script that found out that the server is not a master any more.
func TestDemotedMasterIsLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, dials := counted(t, &redis.Options{}, server)
	b, err := New(client, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	publish := func(id string) error {
		return b.Publish(t.Context(), []*backend.Message{{Topic: "a", ID: id, Once: true}})
	}
	require.NoError(t, publish("1"))
	require.NoError(t, publish("2"))
	require.NoError(t, server.Client(t).Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	before := dials.Load()
	require.ErrorIs(t, publish("3"), backend.ErrUnavailable)
	require.ErrorIs(t, publish("4"), backend.ErrUnavailable)
	require.Equal(t, before+1, dials.Load())
}

// What the server did not run, as it did not know the script, was not sent if the
// context is done before it is sent again.
func TestUnknownScriptIsNotRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := newWire(speaker(t, []byte("-NOSCRIPT No matching script.\r\n")), time.Second)
	defer func() { require.NoError(t, w.close()) }()
	w.send(t.Context(), 0, &call{args: []any{"ping"}})
	line := w.line.Load()
	require.NotNil(t, line)
	line.Conn = &hook{line.Conn, cancel}
	c := &call{args: []any{"xreadgroup", "digest", 0}, script: &publishScript}
	w.send(ctx, 0, c)
	require.ErrorIs(t, c.err, backend.ErrUnavailable)
	require.ErrorIs(t, c.err, context.Canceled)
}

// A hook is a connection with something to do when an answer has come.
type hook struct {
	net.Conn
	answered func()
}

func (h *hook) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.answered()
	return n, err
}

// A reply behind which the other side closes the connection is the last on it.
func TestLastWords(t *testing.T) {
	t.Parallel()
	w := newWire(speaker(t, nil), time.Second)
	defer func() { require.NoError(t, w.close()) }()
	w.send(t.Context(), 0, &call{args: []any{"ping"}})
	line := w.line.Load()
	require.NotNil(t, line)
	line.Conn = &ending{line.Conn}
	c := &call{args: []any{"ping"}}
	w.send(t.Context(), 0, c)
	require.NoError(t, c.err)
	require.Nil(t, w.ready())
}

// An ending connection says so with what it reads last, as one under TLS does.
type ending struct{ net.Conn }

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	if n > 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// What is asked after the context is done is not sent.
func TestNothingIsSentTooLate(t *testing.T) {
	t.Parallel()
	w := newWire(speaker(t, nil), time.Second)
	defer func() { require.NoError(t, w.close()) }()
	first := &call{args: []any{"ping"}}
	w.send(t.Context(), 0, first)
	require.NotNil(t, w.ready())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &call{args: []any{"ping"}}
	w.send(ctx, 0, c)
	require.ErrorIs(t, c.err, backend.ErrUnavailable)
	require.ErrorIs(t, c.err, context.Canceled)
	require.True(t, c.unanswered)
	require.NotNil(t, w.ready(), "nothing is wrong with the connection")
}

// A request is the bytes that go-redis would have sent, in pieces that copy no
// large payload.
func TestRequestIsTheBytes(t *testing.T) {
	t.Parallel()
	word, large := "word", bytes.Repeat([]byte("p"), apart)
	calls := []*call{
		{args: []any{"a", &word, 7, int64(-8), ""}},
		{args: []any{"b", &value{text: []byte("text")}, &value{[]byte("head"), large}, "end"}},
	}
	for range 3 {
		calls = append(calls, &call{args: []any{strings.Repeat("x", fullRequest)}})
	}
	want := "*5\r\n" + resp("a") + resp("word") + resp("7") + resp("-8") + resp("") + "*4\r\n" + resp("b") + resp("text") + resp("head"+string(large)) + resp("end") +
		strings.Repeat("*1\r\n"+resp(strings.Repeat("x", fullRequest)), 3)
	var r request
	var got bytes.Buffer
	for range 2 {
		got.Reset()
		require.NoError(t, r.write(calls, &got))
		require.True(t, want == got.String())
		require.Less(t, cap(r.text), 3*fullRequest)
	}
	require.Panics(t, func() { _ = r.write([]*call{{args: []any{1.5}}}, &got) })
}
