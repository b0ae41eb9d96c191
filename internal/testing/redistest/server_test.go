package redistest_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStartIsFast(t *testing.T) {
	begin := time.Now()
	s := redistest.Start(t)
	t.Logf("Start took %v", time.Since(begin))
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
	require.Less(t, time.Since(begin), 2*time.Second)
	require.Equal(t, "redis://"+s.Addr(), s.URL())
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for range 16 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			s := redistest.Start(t)
			t.Logf("Start took %v", time.Since(begin))
			require.Zero(t, s.Client(t).DBSize(t.Context()).Val())
			require.NoError(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
		})
	}
}

func TestKeepsItsDataAndUsers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	s.User(t, "reader", "secret", "+get", "+ping", "~*")
	for _, end := range []func(){s.Kill, s.Stop} {
		require.NoError(t, c.Incr(t.Context(), "n").Err())
		addr := s.Addr()
		end()
		require.Error(t, c.Ping(t.Context()).Err(), "an answer of a server that has ended")
		end() // does nothing
		s.Run()
		require.Equal(t, addr, s.Addr())
	}
	require.Equal(t, "2", c.Get(t.Context(), "n").Val())
	require.Equal(t, "2", as(t, s, "reader", "secret").Get(t.Context(), "n").Val())
}

func TestWithoutAOFForgets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithoutAOF(), redistest.Args("--maxmemory", "50mb"))
	c := s.Client(t)
	require.Equal(t, "52428800", c.ConfigGet(t.Context(), "maxmemory").Val()["maxmemory"])
	require.NoError(t, c.Incr(t.Context(), "n").Err())
	s.Stop()
	s.Run()
	require.Zero(t, c.Exists(t.Context(), "n").Val())
}

func TestPassword(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Args("--requirepass", "secret"))
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	require.ErrorContains(t, c.Ping(t.Context()).Err(), "NOAUTH")
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	thaw := s.Freeze()
	answered := make(chan error, 1)
	go func() { answered <- c.Incr(t.Context(), "n").Err() }()
	select {
	case err := <-answered:
		t.Fatalf("a frozen server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	thaw()
	require.NoError(t, <-answered)
	require.Equal(t, "1", c.Get(t.Context(), "n").Val())
	s.Freeze()
	s.Kill()
	thaw()
	s.Run()
	s.Freeze()
	s.Stop()
}

func TestSocket(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Socket())
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
	defer c.Close()
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestLog(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.Contains(t, s.Log(), "Ready to accept connections")
}

func TestShared(t *testing.T) {
	t.Parallel()
	a, b := redistest.Shared(t), redistest.Shared(t)
	require.Equal(t, a.Addr(), b.Addr())
	require.NoError(t, a.Client(t).Incr(t.Context(), "TestShared").Err())
	require.Equal(t, "1", b.Client(t).Get(t.Context(), "TestShared").Val())
	require.Panics(t, func() { a.Kill() })
}

func TestUsers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.User(t, "publisher", "secret", "-@all", "+xadd", "+ping", "~bus:*")
	c := as(t, s, "publisher", "secret")
	add := func(key string) error {
		return c.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"k", "v"}}).Err()
	}
	require.NoError(t, add("bus:orders"))
	require.ErrorContains(t, add("orders"), "NOPERM", "a key of others")
	require.ErrorContains(t, c.XLen(t.Context(), "bus:orders").Err(), "NOPERM", "another command")
	require.ErrorContains(t, as(t, s, "publisher", "wrong").Ping(t.Context()).Err(), "WRONGPASS")

	s.Revoke("publisher")
	require.Eventually(t, func() bool {
		err := add("bus:orders")
		return err != nil && strings.Contains(err.Error(), "WRONGPASS")
	}, 5*time.Second, 5*time.Millisecond)
}

// as returns a client with an account.
func as(t *testing.T, s *redistest.Server, name, password string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: name, Password: password, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certs := redistest.Certificates(t)
	good := redistest.Start(t, redistest.TLSWith(certs, certs.Server))
	require.NoError(t, good.Client(t).Ping(t.Context()).Err())
	require.True(t, strings.HasPrefix(good.URL(), "rediss://"))

	ping := func(s *redistest.Server, change func(*redis.Options)) error {
		o := &redis.Options{Addr: s.Addr(), TLSConfig: certs.Config(), MaxRetries: -1, DialerRetries: 1, Protocol: 2, DisableIdentity: true}
		if change != nil {
			change(o)
		}
		c := redis.NewClient(o)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return c.Ping(ctx).Err()
	}
	require.NoError(t, ping(good, nil))
	require.ErrorContains(t, ping(good, func(o *redis.Options) { o.TLSConfig = certs.ForeignConfig() }), "unknown authority")
	require.Error(t, ping(good, func(o *redis.Options) { o.TLSConfig = certs.AnonymousConfig() }), "no client certificate")
	require.Error(t, ping(good, func(o *redis.Options) { o.TLSConfig = certs.StrangerConfig() }), "a foreign client certificate")
	require.Error(t, ping(good, func(o *redis.Options) { o.TLSConfig = nil }), "no TLS at all")

	expired := redistest.Start(t, redistest.TLSWith(certs, certs.Expired))
	require.ErrorContains(t, ping(expired, nil), "expired")
	wrong := redistest.Start(t, redistest.TLSWith(certs, certs.WrongName))
	require.ErrorContains(t, ping(wrong, nil), "127.0.0.1")
}

func TestTLSByDefault(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.TLS())
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
	require.FileExists(t, s.Certificates().CA)
}

func TestEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var s *redistest.Server
	t.Run("inner", func(t *testing.T) {
		s = redistest.Start(t)
		s.Freeze()
	})
	_, err := net.Dial("tcp", s.Addr())
	require.ErrorContains(t, err, "refused")
}

func TestCluster(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	cluster := redistest.StartCluster(t)
	t.Logf("StartCluster took %v", time.Since(begin))
	require.Len(t, cluster.Addrs(), 3)

	moved := 0
	for _, s := range cluster.Nodes() {
		if err := s.Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
			require.ErrorContains(t, err, "MOVED")
			moved++
		}
	}
	require.Equal(t, 2, moved, "nodes that do not serve the slot")
	c := cluster.Client(t)
	for _, k := range []string{"a", "b", "c", "d", "e", "f"} {
		require.NoError(t, c.Set(t.Context(), k, k, 0).Err())
		require.Equal(t, k, c.Get(t.Context(), k).Val())
	}
	require.ErrorContains(t, c.Eval(t.Context(), "return 1", []string{"a", "b"}).Err(), "slot")
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	s := redistest.StartSentinel(t)
	t.Logf("StartSentinel took %v", time.Since(begin))
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: s.MasterName(), SentinelAddrs: s.SentinelAddrs(), Protocol: 2, DisableIdentity: true,
	})
	defer c.Close()
	require.NoError(t, c.Set(t.Context(), "k", "before", 0).Err())
	require.NoError(t, c.Wait(t.Context(), 1, 5*time.Second).Err())

	begin = time.Now()
	old := s.KillMaster()
	require.Eventually(t, func() bool { return c.Set(t.Context(), "after", "v", 0).Err() == nil }, 20*time.Second, 10*time.Millisecond,
		"writes accepted again")
	t.Logf("writes were refused for %v", time.Since(begin))
	require.Equal(t, "before", c.Get(t.Context(), "k").Val())
	require.NotEqual(t, old.Addr(), s.Master().Addr())

	// A sentinel that has not heard of the new master would make it follow the old one.
	for _, addr := range s.SentinelAddrs() {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
		require.Eventually(t, func() bool {
			named := sentinel.GetMasterAddrByName(t.Context(), s.MasterName()).Val()
			return len(named) == 2 && strings.Join(named, ":") != old.Addr()
		}, 20*time.Second, 10*time.Millisecond, "%s names the new master", addr)
		require.NoError(t, sentinel.Close())
	}
	old.Run()
	require.Eventually(t, func() bool { return old.Client(t).Get(t.Context(), "after").Val() == "v" }, 20*time.Second, 50*time.Millisecond,
		"the old master follows the new one")
}
