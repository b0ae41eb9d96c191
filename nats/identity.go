package nats

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Identified = (*Backend)(nil)

// Identity implements [backend.Identified].
func (b *Backend) Identity() backend.Identity {
	o := b.conn.Opts
	i := backend.Identity{System: "nats", Client: o.Name}
	server := o.Url
	if len(o.Servers) > 0 {
		server = o.Servers[0]
	}
	server, _, _ = strings.Cut(server, ",")
	server = strings.TrimSpace(server)
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return i
	}
	i.Address, i.Port = u.Hostname(), 4222
	if port, err := strconv.Atoi(u.Port()); err == nil {
		i.Port = port
	}
	return i
}
