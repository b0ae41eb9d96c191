package redistest

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	masterName    = "eventbus"
	sentinelCount = 3
)

// Sentinel is a master with one replica and three sentinels, of which two make a quorum. If the
// master is silent for a second, the replica replaces it two or three seconds later.
type Sentinel struct {
	t         testing.TB
	servers   []*Server
	sentinels []*Server
	clients   []*redis.SentinelClient
}

// StartSentinel starts a master, a replica and three sentinels. It returns when the replica is
// in sync and each sentinel knows the replica and the other sentinels. The options apply to the
// master and the replica.
func StartSentinel(t testing.TB, o ...Option) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	o = append(o, lines("repl-diskless-sync yes", "repl-diskless-sync-delay 0"))
	master := Start(t, o...)
	replica := Start(t, append(o, lines(fmt.Sprintf("replicaof 127.0.0.1 %d", master.port)))...)
	s.servers = []*Server{master, replica}
	for range sentinelCount {
		sentinel := Start(t, asSentinel, lines(
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", masterName, master.port),
			"sentinel down-after-milliseconds "+masterName+" 1000",
			"sentinel failover-timeout "+masterName+" 3000",
		))
		client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr(), Protocol: 2, DisableIdentity: true})
		t.Cleanup(func() { client.Close() })
		// From Redis 7.0 on, this makes the sentinels find each other faster than with the
		// default of every two seconds.
		_ = sentinel.Client(t).Do(t.Context(), "SENTINEL", "DEBUG", "PUBLISH-PERIOD", 100, "INFO-PERIOD", 500)
		s.sentinels = append(s.sentinels, sentinel)
		s.clients = append(s.clients, client)
	}
	for _, c := range s.clients {
		until(t, "the sentinels know replica and each other", func() error { return s.ready(c) })
	}
	return s
}

// asSentinel makes the server a sentinel.
func asSentinel(s *settings) { s.sentinel = true }

// ready returns an error until the sentinel knows enough to replace the master.
func (s *Sentinel) ready(c *redis.SentinelClient) error {
	quorum, err := c.CkQuorum(s.t.Context(), masterName).Result()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(quorum, fmt.Sprintf("OK %d usable", sentinelCount)) {
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

// MasterName returns the master's name, for clients of the sentinels.
func (s *Sentinel) MasterName() string { return masterName }

// SentinelAddrs returns the addresses of the sentinels, host:port.
func (s *Sentinel) SentinelAddrs() []string { return addrs(s.sentinels) }

// Servers returns the two servers that started as master and as replica.
func (s *Sentinel) Servers() []*Server { return s.servers }

// Master returns the server that the sentinels name as the master, which may just have died. If
// the sentinels disagree, the answer with the latest epoch wins.
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
		// After a failover, this command names the new master earlier than the one above,
		// which is needed for the epoch.
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

// KillMaster kills the master and returns it. The sentinels then promote the replica. If the old
// master runs again, they make it a replica.
func (s *Sentinel) KillMaster() *Server {
	s.t.Helper()
	master := s.Master()
	master.Kill()
	return master
}

// Replace makes the sentinels replace the master, which keeps running, with the replica. After
// that they replace no master, however long it is silent.
func (s *Sentinel) Replace() {
	s.t.Helper()
	old := s.Master()
	for _, c := range s.clients {
		if err := c.Set(s.t.Context(), masterName, "down-after-milliseconds", "3600000").Err(); err != nil {
			s.t.Fatalf("redistest: %v", err)
		}
	}
	until(s.t, "the replica is the master", func() error {
		if s.Master() != old {
			return nil
		}
		// On a busy machine the sentinel may take the replica for silent, and then gives up.
		return fmt.Errorf("failover: %w", cmp.Or(s.clients[0].Failover(s.t.Context(), masterName).Err(), errBegun))
	})
	until(s.t, "all sentinels name the new master", func() error { return s.settle(old) })
}

// settle permanently makes the successor of old a master, once all sentinels name it. A sentinel
// that heard of the failover late may have made it a replica of old again.
func (s *Sentinel) settle(old *Server) error {
	for _, c := range s.clients {
		addr, err := c.GetMasterAddrByName(s.t.Context(), masterName).Result()
		if err != nil {
			return err
		}
		if strings.Join(addr, ":") == old.Addr() {
			return errors.New("a sentinel names the old one")
		}
	}
	return s.Master().Client(s.t).Do(s.t.Context(), "replicaof", "no", "one").Err()
}

var errBegun = errors.New("has just begun")
