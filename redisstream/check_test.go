package redisstream_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// notices collects the notices of a driver.
type notices struct {
	mu   sync.Mutex
	list []backend.Notice
}

func (n *notices) notify(notice backend.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, notice)
}

// F16: a server that may evict topics is refused when it is opened or first used, unless
// that is allowed. Nothing is stored there before.
func TestServerThatEvictsIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Args("--maxmemory-policy", "allkeys-lru"))
	_, err := openURL(t, server.URL())
	require.ErrorIs(t, err, backend.ErrRefused)
	require.ErrorContains(t, err, "allkeys-lru")
	require.ErrorContains(t, err, "noeviction")

	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	requireEach(t, b, backend.ErrRefused)
	require.Zero(t, server.Client(t).DBSize(t.Context()).Val(), "nothing was stored")

	allowing := open(t, dial(t, server.Addr()), redisstream.Options{AllowEviction: true})
	publish(t, allowing, batch("a", 1))
	byURL, err := openURL(t, server.URL()+"?allow_eviction=true")
	require.NoError(t, err)
	publish(t, byURL, batch("b", 1))

	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	publish(t, b, batch("c", 1))
}

// A server that evicts only keys with a time to live keeps topics and delays. It is used, and
// the operator is notified once.
func TestServerThatEvictsMarksIsNoticed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Args("--maxmemory-policy", "volatile-lru"))
	b, err := openURL(t, server.URL())
	require.NoError(t, err)
	var n notices
	c := config()
	c.Notify = n.notify
	s := attach(t, b, c)
	attach(t, b, c)
	require.Len(t, n.list, 1)
	require.Contains(t, n.list[0].Text, "volatile-lru")
	publish(t, b, once(batch("a", 2)))
	ds := receive(t, s, 2)
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: time.Hour}}))
	_, err = b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	client := server.Client(t)
	keys, err := client.Keys(t.Context(), "bus:{orders}*").Result()
	require.NoError(t, err)
	var marks []string
	for _, key := range keys {
		if client.PTTL(t.Context(), key).Val() > 0 {
			marks = append(marks, key)
		}
	}
	require.Contains(t, keys, stream+":delayed:"+workers)
	for _, key := range marks {
		require.True(t, strings.HasPrefix(key, stream+":once:") || key == stream+":young" || strings.HasSuffix(key, ":turn"), key)
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "4mb").Err())
	stored, full := 0, error(nil)
	for ; full == nil; stored++ {
		full = b.Publish(t.Context(), []*backend.Message{{Topic: topic, ID: fmt.Sprint(stored), Payload: make([]byte, 10_000), Once: true}})
	}
	require.ErrorIs(t, full, backend.ErrFull)
	require.Equal(t, int64(stored+1), client.XLen(t.Context(), stream).Val(), "with the first two, and without the last")
	require.Equal(t, int64(1), client.ZCard(t.Context(), stream+":delayed:"+workers).Val())
}

func TestOneClusterNodeThatEvictsIsEnoughToRefuse(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	require.NoError(t, cluster.Nodes()[2].Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lfu").Err())
	_, err := openURL(t, "redis+cluster://"+cluster.Addrs()[0])
	require.ErrorIs(t, err, backend.ErrRefused)
	require.ErrorContains(t, err, "allkeys-lfu")
	b, err := openURL(t, "redis+cluster://"+cluster.Addrs()[0]+"?allow_eviction=true&addr="+cluster.Addrs()[1])
	require.NoError(t, err)
	publish(t, b, batch("a", 1))
}

func TestServerWithoutFileIsNoticed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithoutAOF())
	b, err := openURL(t, server.URL())
	require.NoError(t, err)
	var n notices
	c := config()
	c.Notify = n.notify
	attach(t, b, c)
	require.Len(t, n.list, 1)
	require.Contains(t, n.list[0].Text, "append-only")
	require.Empty(t, n.list[0].Topic+n.list[0].Group, "it concerns the whole backend")
	c.Group = "second"
	attach(t, b, c)
	require.Len(t, n.list, 1, "the second member is not told again")

	quiet := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	var none notices
	c.Notify = none.notify
	attach(t, quiet, c)
	require.Empty(t, none.list, "a server as it should be")
}

func TestServerThatSaysNothingOfItselfIsNoticed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Args("--maxmemory-policy", "allkeys-lru"))
	server.User(t, "app", "secret", "+@all", "-info", "~*")
	b := open(t, dialAs(t, server.Addr(), "app", "secret"), redisstream.Options{})
	var n notices
	c := config()
	c.Notify = n.notify
	attach(t, b, c)
	require.Len(t, n.list, 1)
	require.Contains(t, n.list[0].Text, "INFO")
	publish(t, b, batch("a", 1))
}

// The first check of a server that hangs delays one caller. The others wait no longer than
// their own contexts.
func TestCheckThatHangsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	thaw := proxy.Freeze()
	first := make(chan error, 1)
	go func() { first <- b.Publish(within(t, 4*time.Second), batch("a", 1)) }()
	pause(300 * time.Millisecond)
	start := time.Now()
	err := b.Publish(within(t, 200*time.Millisecond), batch("b", 1))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Less(t, time.Since(start), time.Second)
	_, err = b.Attach(within(t, 200*time.Millisecond), config())
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Less(t, time.Since(start), 2*time.Second)
	thaw()
	require.NoError(t, <-first)
}
