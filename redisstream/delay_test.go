package redisstream_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// The longest possible delay does not count as over.
func TestDelayForEver(t *testing.T) {
	t.Parallel()
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 1))
	ds := receive(t, s, 1)
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: math.MaxInt64}}))
	nothing(t, s, time.Second)
}

// A message is delivered soon after its delay is over, even by an idle server, which ends a
// waiting read up to 100 ms late. A delay may begin before or during a waiting read. The test
// bounds the times only if no other tests run at the same time.
func TestDelaysEndPromptly(t *testing.T) {
	if !alone() {
		t.Parallel()
	}
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 1))
	d := receive(t, s, 1)[0]
	for name, while := range map[string]bool{"while a read waits": true, "before the read": false} {
		for _, delay := range []time.Duration{0, 20 * time.Millisecond, 150 * time.Millisecond} {
			var late []time.Duration
			for range 9 {
				begun := make(chan time.Time, 1)
				held := d
				begin := func() {
					now := time.Now()
					if err := s.Delay(t.Context(), []backend.Delayed{{Delivery: held, For: delay, Refund: true}}); err != nil {
						t.Error(err)
					}
					begun <- now
				}
				if while {
					time.AfterFunc(30*time.Millisecond, begin)
				} else {
					begin()
				}
				d = receive(t, s, 1)[0]
				late = append(late, time.Since(<-begun)-delay)
			}
			slices.Sort(late)
			t.Logf("%s, %v: %v", name, delay, late)
			if alone() {
				require.Less(t, late[4], 40*time.Millisecond, "%s, half of the delays of %v", name, delay)
			}
		}
	}
}

const lag = 20 * time.Millisecond

// A lagging connection is slow for each Receive: the request arrives late, and the answer
// too.
type lagging struct {
	net.Conn
	late bool
}

func (c *lagging) Write(p []byte) (int, error) {
	c.late = bytes.Contains(p, []byte("\r\nxreadgroup\r\n")) || bytes.Contains(p, []byte(redisstream.TakeDigest))
	if c.late {
		pause(lag)
	}
	return c.Conn.Write(p)
}

func (c *lagging) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.late && n > 0 {
		c.late = false
		pause(lag)
	}
	return n, err
}

// A delayed message is redelivered on time, even if the Delay races the start of a
// Receive. The Receive may be sending the script, reading its answer, or sending a read
// that waits.
func TestDelayThatRacesReceiveIsOnTime(t *testing.T) {
	server := redistest.Start(t)
	dialer := func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		return &lagging{Conn: c}, err
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: dialer})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	loaded(t, server)
	b := open(t, client, redisstream.Options{})
	c := config()
	c.Lease = time.Minute
	s := attach(t, b, c)
	publish(t, b, batch("a", 1))
	held := receive(t, s, 1)
	var worst time.Duration
	for range 30 {
		due := make(chan time.Time, 1)
		go func() {
			pause(rand.N(4 * lag))
			err := s.Delay(t.Context(), []backend.Delayed{{Delivery: held[0], For: 10 * time.Millisecond}})
			due <- time.Now().Add(10 * time.Millisecond)
			if err != nil {
				t.Errorf("delay: %v", err)
			}
		}()
		got := receive(t, s, 1)
		worst = max(worst, time.Since(<-due))
		held = got
	}
	t.Logf("at most %v late", worst)
	require.Less(t, worst, 500*time.Millisecond, "after it is due")
}

// A message is due when its delay is over, not up to a millisecond later. A Receive that
// is called then delivers no new message first.
func TestNothingNewOnceTheDelayHasPassed(t *testing.T) {
	t.Parallel()
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	c := config()
	c.Lease = time.Minute
	s := attach(t, b, c)
	publish(t, b, batch("a", 500))
	head := receive(t, s, 1)[0]
	for i := range 300 {
		wait := time.Duration(500+7*i) * time.Microsecond
		require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: head, For: wait}}))
		for due := time.Now().Add(wait); time.Now().Before(due); {
		}
		ds, err := s.Receive(t.Context(), 1, 0)
		require.NoError(t, err)
		require.Equal(t, []string{head.ID}, []string{ds[0].ID}, "after a delay of %v", wait)
		head = ds[0]
	}
}

// However many messages become due at once, no run of the script blocks the server for
// long.
func TestMuchDueAtOnceHoldsUpNobody(t *testing.T) {
	t.Parallel()
	n := 20_000
	if k, err := strconv.Atoi(os.Getenv("EVENTBUS_DUE")); err == nil {
		n = k
	}
	server := redistest.Start(t)
	admin := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	c := config()
	c.Lease = time.Minute
	s := attach(t, b, c)
	fill(t, admin, n)
	for left := n; left > 0; {
		var later []backend.Delayed
		for _, d := range receive(t, s, min(left, 1000)) {
			later = append(later, backend.Delayed{Delivery: d, For: time.Hour})
		}
		require.NoError(t, s.Delay(t.Context(), later))
		left -= len(later)
	}
	// Half of a current timestamp is long ago, so all messages become due at once.
	delayed := stream + ":delayed:" + workers
	require.NoError(t, admin.ZUnionStore(t.Context(), delayed, &redis.ZStore{Keys: []string{delayed}, Weights: []float64{0.5}}).Err())
	require.NoError(t, admin.ConfigSet(t.Context(), "slowlog-log-slower-than", fmt.Sprint(slow.Microseconds())).Err())
	require.NoError(t, admin.ConfigSet(t.Context(), "slowlog-max-len", "10000").Err())
	require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
	start := time.Now()
	ds := receive(t, s, 1)
	t.Logf("the first of %d after %v", n, time.Since(start))
	for count := 1; count < n; count += len(ds) {
		require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
		position := ds[len(ds)-1].Position
		ds = receive(t, s, min(1000, n-count))
		require.Greater(t, ds[0].Position, position)
	}
	t.Logf("%d in %v", n, time.Since(start))
	requireQuick(t, admin)
}

// Messages that became due in reverse order are redelivered in the order of their
// positions, before any new message.
func TestWhatIsDueComesByPosition(t *testing.T) {
	t.Parallel()
	const n = 1500
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	c := config()
	c.Lease = time.Minute
	s := attach(t, b, c)
	publish(t, b, batch("back", n))
	var last time.Time
	for i := 0; i < n; {
		ds := receive(t, s, 100)
		var later []backend.Delayed
		for _, d := range ds {
			later = append(later, backend.Delayed{Delivery: d, For: 4*time.Second - time.Duration(i)*300*time.Microsecond})
			i++
		}
		require.NoError(t, s.Delay(t.Context(), later))
		last = time.Now().Add(4 * time.Second)
	}
	publish(t, b, batch("new", 10))
	pause(time.Until(last))
	for next := 0; next < n; {
		ds, err := s.Receive(t.Context(), 7, 0)
		require.NoError(t, err)
		require.NotEmpty(t, ds, "%d of %d", next, n)
		for _, d := range ds {
			require.Equal(t, fmt.Sprintf("back-%d", next), d.ID)
			next++
		}
	}
	require.Equal(t, "new-0", receive(t, s, 1)[0].ID)
}
