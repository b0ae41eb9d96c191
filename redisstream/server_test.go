package redisstream_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// openURL opens a backend by its URL. It is closed when the test ends.
func openURL(t testing.TB, raw string) (*redisstream.Backend, error) {
	u, err := url.Parse(raw)
	require.NoError(t, err)
	b, err := redisstream.Open(within(t, 10*time.Second), u)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, b.Close()) })
	}
	return b, err
}

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

// A server that evicts only keys with a time to live keeps topics and delays. It is used,
// and the operator is told once.
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

// A denied SELECT is not taken for a denied INFO.
func TestServerWhoseDatabaseIsDeniedFailsOpen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	consumer := rules(t)["consumer"]
	server.User(t, "app", "secret", consumer...)
	_, err := openURL(t, "redis://app:secret@"+server.Addr()+"/1")
	require.ErrorIs(t, err, backend.ErrDenied)
	server.User(t, "app", "secret", append(consumer, rules(t)["database"]...)...)
	b, err := openURL(t, "redis://app:secret@"+server.Addr()+"/1")
	require.NoError(t, err)
	publish(t, b, batch("a", 1))
}

// dialAs returns a client of a user, closed when the test ends.
func dialAs(t testing.TB, addr, user, password string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: password})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// If the server cannot be reached, Open fails by the end of its context.
func TestServerThatIsDownFailsOpen(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	p.Refuse(true)
	_, err := openURL(t, "redis://"+p.Addr())
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "redisstream: open: ")
	p.Refuse(false)

	thaw := p.Freeze()
	defer thaw()
	u, err := url.Parse("redis://" + p.Addr())
	require.NoError(t, err)
	start := time.Now()
	_, err = redisstream.Open(within(t, 300*time.Millisecond), u)
	require.ErrorIs(t, err, within(t, 0).Err())
	require.Less(t, time.Since(start), 3*time.Second)
}

func TestUnixSocketWorks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Socket())
	b, err := openURL(t, "unix://"+server.Socket()+"?db=3")
	require.NoError(t, err)
	s := attach(t, b, config())
	publish(t, b, batch("a", 3))
	require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 3))))
	require.Zero(t, server.Client(t).Exists(t.Context(), stream).Val(), "it is in another database")
	_, err = openURL(t, "unix:///nowhere/redis.sock")
	require.ErrorIs(t, err, backend.ErrUnavailable)
}

// Entries of other programs are delivered unchanged, with an error.
func TestForeignEntriesAreHandedOutRaw(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	add := func(values ...any) {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: values}).Err())
	}
	add("event", "no entry")
	add("body", "one field, another name")
	add("a", "1", "event", "\n", "b", "")
	add("event", ":strange: x\n\npayload")
	add("", "")
	publish(t, b, batch("ours", 1))
	want := []string{"no entry", "body=one field, another name\n", "a=1\nevent=\n\nb=\n", ":strange: x\n\npayload", "=\n"}
	ds := receive(t, s, len(want)+1)
	for i, text := range want {
		require.Error(t, ds[i].Err, text)
		require.NotErrorIs(t, ds[i].Err, backend.ErrGone)
		require.Equal(t, text, string(ds[i].Payload))
		require.Empty(t, ds[i].ID+ds[i].Key)
		require.Empty(t, ds[i].Headers)
		require.Equal(t, 1, ds[i].Attempt)
		require.Len(t, ds[i].Position, 35)
	}
	require.NoError(t, ds[len(want)].Err)

	// They are redelivered as any message, and can be read and settled.
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[1]}}))
	again := receive(t, s, 1)
	require.Error(t, again[0].Err)
	require.Equal(t, want[1], string(again[0].Payload))
	require.NoError(t, s.Ack(t.Context(), backend.Lend(append(ds, again...))))
	all := stored(t, b)
	for i, text := range want {
		require.Equal(t, text, string(all[i].Payload))
	}
}
