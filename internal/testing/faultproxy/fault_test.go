package faultproxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
)

func TestRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t, func(o *redis.Options) { o.DialerRetries = 1 })
	require.NoError(t, c.Ping(t.Context()).Err())
	r.proxy.Refuse(true)
	for range 3 {
		require.Error(t, c.Ping(t.Context()).Err(), "an answer while refused")
	}
	require.Zero(t, r.proxy.Connections())
	r.proxy.Refuse(false)
	healed(t, c)
}

// healed waits until go-redis has recovered: it returns its last connection error for up
// to a second.
func healed(t *testing.T, c *redis.Client) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, 10*time.Second, 5*time.Millisecond)
}

func TestFreezeLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t, func(o *redis.Options) { o.PoolSize = 4 })
	require.NoError(t, c.Ping(t.Context()).Err())
	thaw, again := r.proxy.Freeze(), r.proxy.Freeze()
	thaw()
	thaw()

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := c.Incr(t.Context(), "n").Err(); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	require.Zero(t, r.behind.Exists(t.Context(), "n").Val(), "a frozen proxy let bytes through")
	require.GreaterOrEqual(t, r.proxy.Connections(), 1)
	again()
	wg.Wait()
	require.Equal(t, "20", r.behind.Get(t.Context(), "n").Val())
}

func TestSwallow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t, func(o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond })
	raw, err := net.Dial("tcp", r.proxy.Addr())
	require.NoError(t, err)
	defer raw.Close()
	say(t, raw, "PING\r\n", "+PONG\r\n")
	require.NoError(t, c.Ping(t.Context()).Err())

	r.proxy.Swallow(true)
	begin := time.Now()
	var timeout net.Error
	require.ErrorAs(t, c.Incr(t.Context(), "n").Err(), &timeout)
	require.True(t, timeout.Timeout())
	require.GreaterOrEqual(t, time.Since(begin), 450*time.Millisecond)
	require.Equal(t, "1", r.behind.Get(t.Context(), "n").Val(), "requests arrive")
	require.ErrorAs(t, c.Ping(t.Context()).Err(), &timeout, "a new connection")

	r.proxy.Swallow(false)
	require.NoError(t, c.Ping(t.Context()).Err(), "a new connection after")
	silent(t, raw, "PING\r\n")

	// The client does not learn that the server has gone.
	r.server.Kill()
	silent(t, raw, "PING\r\n")
	silent(t, raw, "PING\r\n")
	r.proxy.Cut()
	_, err = raw.Read(make([]byte, 1))
	require.ErrorContains(t, err, "reset")
}

// Only the connection of the matching request is half-open.
func TestSwallowOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var conns [2]net.Conn
	for i := range conns {
		c, err := net.Dial("tcp", r.proxy.Addr())
		require.NoError(t, err)
		defer c.Close()
		conns[i] = c
		say(t, c, "PING\r\n", "+PONG\r\n")
	}
	r.proxy.SwallowOne(func(request []byte) bool { return bytes.Contains(request, []byte("victim")) })
	say(t, conns[0], "PING\r\n", "+PONG\r\n")
	silent(t, conns[0], "SET victim 1\r\n")
	require.Equal(t, "1", r.behind.Get(t.Context(), "victim").Val(), "the request arrives")
	silent(t, conns[0], "PING\r\n")
	say(t, conns[1], "SET victim 2\r\n", "+OK\r\n")
}

// say sends text and requires the answer want.
func say(t *testing.T, c net.Conn, text, want string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	b := make([]byte, len(want))
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, want, string(b))
}

// silent sends text and requires that neither an answer nor the end of the stream arrives.
func silent(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := c.Read(make([]byte, 16))
	require.Zero(t, n)
	require.ErrorContains(t, err, "timeout")
	require.NoError(t, c.SetReadDeadline(time.Time{}))
}

func TestDelayIsLatency(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	r.proxy.Delay(150*time.Millisecond, 0)
	begin := time.Now()
	require.NoError(t, c.Ping(t.Context()).Err())
	require.GreaterOrEqual(t, time.Since(begin), 300*time.Millisecond, "there and back")

	raw, err := net.Dial("tcp", r.proxy.Addr())
	require.NoError(t, err)
	defer raw.Close()
	begin = time.Now()
	want := ""
	for i := range 50 { // one chunk each
		_, err := fmt.Fprintf(raw, "ECHO %02d\r\n", i)
		require.NoError(t, err)
		want += fmt.Sprintf("$2\r\n%02d\r\n", i)
		time.Sleep(time.Millisecond)
	}
	r.proxy.Delay(20*time.Millisecond, 20*time.Millisecond)
	say(t, raw, "PING\r\n", want+"+PONG\r\n")
	require.Less(t, time.Since(begin), 5*time.Second, "50 requests one after the other took as long as 50 round trips")
	r.proxy.Delay(0, 0)
	begin = time.Now()
	require.NoError(t, c.Ping(t.Context()).Err())
	require.Less(t, time.Since(begin), 300*time.Millisecond, "without delay")
}

func TestThrottleIsASlowLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	r.proxy.Throttle(100_000)
	begin := time.Now()
	require.NoError(t, c.Set(t.Context(), "k", make([]byte, 50_000), 0).Err())
	took := time.Since(begin)
	require.Greater(t, took, 400*time.Millisecond)
	require.Less(t, took, 4*time.Second)
	r.proxy.Throttle(0)
	begin = time.Now()
	require.NoError(t, c.Set(t.Context(), "k", make([]byte, 500_000), 0).Err())
	require.Less(t, time.Since(begin), 4*time.Second, "without a limit, of 5 s")
}

func TestServerDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t, func(o *redis.Options) { o.DialerRetries = 1 })
	require.NoError(t, c.Ping(t.Context()).Err())
	r.server.Kill()
	require.Error(t, c.Ping(t.Context()).Err())
	require.Error(t, c.Ping(t.Context()).Err())
	require.Eventually(t, func() bool { return r.proxy.Connections() == 0 }, 5*time.Second, time.Millisecond)
	r.server.Run()
	healed(t, c)
}

func TestLastWordsOfTheServerArrive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw, err := net.Dial("tcp", r.proxy.Addr())
	require.NoError(t, err)
	defer raw.Close()
	r.proxy.Delay(20*time.Millisecond, 0)
	_, err = io.WriteString(raw, "PING\r\nQUIT\r\n")
	require.NoError(t, err)
	all, err := io.ReadAll(raw)
	require.NoError(t, err, "an end in good order")
	require.Equal(t, "+PONG\r\n+OK\r\n", string(all))
}

func TestTLSPasses(t *testing.T) {
	t.Parallel()
	r := newTLSRig(t)
	c := r.client(t, func(o *redis.Options) { o.TLSConfig = r.server.Certificates().Config() })
	require.NoError(t, c.Set(t.Context(), "k", make([]byte, 1<<20), 0).Err())
	require.Len(t, c.Get(t.Context(), "k").Val(), 1<<20)
	require.Empty(t, r.proxy.Commands(), "names in what cannot be read")
	require.GreaterOrEqual(t, r.proxy.RoundTrips(), int64(2))
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	r := newSocketRig(t)
	c := r.client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	r.proxy.Cut()
	_ = c.Ping(t.Context()).Err() // may find its connection broken
	require.NoError(t, c.Ping(t.Context()).Err())
}

// TestStorm cuts connections and drops replies all the time. Every answer that a client got
// was right.
func TestStorm(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t, func(o *redis.Options) { o.PoolSize = 8 })
	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			switch i % 4 {
			case 0:
				r.proxy.Cut()
			case 1:
				r.proxy.DropReplyTo("INCR")
			case 2:
				thaw := r.proxy.Freeze()
				time.Sleep(time.Millisecond)
				thaw()
			case 3:
				r.proxy.Delay(time.Duration(i%3)*time.Millisecond, time.Millisecond)
			}
		}
	})
	var mu sync.Mutex
	stored, unknown := 0, 0
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 100 {
				err := c.Incr(t.Context(), "n").Err()
				mu.Lock()
				if err == nil {
					stored++
				} else {
					unknown++
				}
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	close(stop)
	faults.Wait()
	n, err := r.behind.Get(t.Context(), "n").Int()
	require.NoError(t, err)
	t.Logf("%d stored, %d unknown, %d on the server", stored, unknown, n)
	require.GreaterOrEqual(t, n, stored)
	require.LessOrEqual(t, n, stored+unknown)
}

func TestCloseEndsAll(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := faultproxy.New(t, r.server.Addr())
	p.Freeze()
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "PING\r\n")
	require.NoError(t, err)
	p.Close()
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	p.Close()
}
