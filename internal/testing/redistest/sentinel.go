package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	masterName = "eventbus"
	watchers   = 3
)

// Sentinel is a master with one replica, watched by three sentinels of which two
// decide: a master that is silent for a second is replaced within two or three.
type Sentinel struct {
	t         testing.TB
	servers   []*Server
	sentinels []*Server
	clients   []*redis.SentinelClient
}

// StartSentinel starts all five, and returns when the replica is in sync and the
// sentinels know it and each other. The options are those of master and replica.
func StartSentinel(t testing.TB, o ...Option) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	o = append(o, lines("repl-diskless-sync yes", "repl-diskless-sync-delay 0"))
	master := Start(t, o...)
	replica := Start(t, append(o, lines(fmt.Sprintf("replicaof 127.0.0.1 %d", master.port)))...)
	s.servers = []*Server{master, replica}
	for range watchers {
		watcher := Start(t, watches, lines(
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", masterName, master.port),
			"sentinel down-after-milliseconds "+masterName+" 1000",
			"sentinel failover-timeout "+masterName+" 3000",
		))
		client := redis.NewSentinelClient(&redis.Options{Addr: watcher.Addr(), Protocol: 2, DisableIdentity: true})
		t.Cleanup(func() { client.Close() })
		// Redis 7.0 lets them meet sooner than every two seconds.
		_ = watcher.Client(t).Do(t.Context(), "SENTINEL", "DEBUG", "PUBLISH-PERIOD", 100, "INFO-PERIOD", 500)
		s.sentinels = append(s.sentinels, watcher)
		s.clients = append(s.clients, client)
	}
	for _, c := range s.clients {
		until(t, "the sentinels know replica and each other", func() error { return s.ready(c) })
	}
	return s
}

// watches makes the server a sentinel.
func watches(s *settings) { s.sentinel = true }

// ready says whether a sentinel knows enough to replace the master.
func (s *Sentinel) ready(c *redis.SentinelClient) error {
	quorum, err := c.CkQuorum(s.t.Context(), masterName).Result()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(quorum, fmt.Sprintf("OK %d usable", watchers)) {
		return fmt.Errorf("quorum: %s", quorum)
	}
	replicas, err := c.Replicas(s.t.Context(), masterName).Result()
	if err != nil {
		return err
	}
	if len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok" {
		return fmt.Errorf("replicas: %v", replicas)
	}
	return nil
}

// MasterName is the name that clients ask the sentinels for.
func (s *Sentinel) MasterName() string { return masterName }

// SentinelAddrs are the addresses of the sentinels, host:port.
func (s *Sentinel) SentinelAddrs() []string { return addrs(s.sentinels) }

// Sentinels are the sentinels, as processes to be harmed.
func (s *Sentinel) Sentinels() []*Server { return s.sentinels }

// Servers are the two that have been started as master and as replica.
func (s *Sentinel) Servers() []*Server { return s.servers }

// Master is the server that the sentinels name now, which may be one that has just
// died. Of sentinels that name different ones, that with the latest news is right.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	var named *Server
	latest := -1
	var failed error
	for _, c := range s.clients {
		m, err := c.Master(s.t.Context(), masterName).Result()
		if err != nil {
			failed = err
			continue
		}
		// This knows a new master sooner than the answer above, which has the epoch.
		addr, err := c.GetMasterAddrByName(s.t.Context(), masterName).Result()
		if err != nil {
			failed = err
			continue
		}
		epoch, err := strconv.Atoi(m["config-epoch"])
		if err != nil || epoch <= latest {
			continue
		}
		for _, server := range s.servers {
			if server.Addr() == strings.Join(addr, ":") {
				named, latest = server, epoch
			}
		}
	}
	if named == nil {
		s.t.Fatalf("redistest: no sentinel names a master of ours: %v", failed)
	}
	return named
}

// KillMaster kills the master and returns it. The sentinels replace it; if it is
// run again, they make it a replica.
func (s *Sentinel) KillMaster() *Server {
	s.t.Helper()
	master := s.Master()
	master.Kill()
	return master
}
