package redisstream_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

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
