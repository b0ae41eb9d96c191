package redisstream

import (
	"cmp"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Identified = (*Backend)(nil)

// Identity implements [backend.Identified]. A lent client for Sentinel does not tell its
// addresses, so that Address is then empty.
func (b *Backend) Identity() backend.Identity {
	i := backend.Identity{System: "redis"}
	addr := b.opened
	switch client := b.lent.(type) {
	case *redis.Client:
		i.Client = client.Options().ClientName
		if !b.sentinel {
			addr = cmp.Or(addr, client.Options().Addr)
		}
	case *redis.ClusterClient:
		i.Client = client.Options().ClientName
		if addrs := client.Options().Addrs; addr == "" && len(addrs) > 0 {
			addr = addrs[0]
		}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		i.Address = addr // the path of a socket
		return i
	}
	i.Address = host
	i.Port, _ = strconv.Atoi(port)
	return i
}
