// Package proxyrig is what the tests of the drivers for Redis and NATS share: each backend
// reaches its real servers through fault proxies of its own, so a test can harm the
// connection of one backend while others use the same server.
package proxyrig

import (
	"context"
	"sync"
	"testing"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
)

// A Link connects one backend with its servers. Each driver's tests add what they know of
// the connection: the client, the options, the servers themselves.
type Link interface {
	// Proxies returns a proxy for each server.
	Proxies() []*faultproxy.Proxy
}

// A Rig remembers the link of each backend that a test has opened. The zero value is ready
// to use.
type Rig[L Link] struct {
	mu    sync.Mutex
	links map[backend.Backend]L
}

// Add records the link of a backend.
func (r *Rig[L]) Add(b backend.Backend, link L) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.links == nil {
		r.links = map[backend.Backend]L{}
	}
	r.links[b] = link
}

// Link returns the link of a backend.
func (r *Rig[L]) Link(b backend.Backend) L {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.links[b]
}

// Each calls f for every proxy of a backend.
func (r *Rig[L]) Each(b backend.Backend, f func(*faultproxy.Proxy)) {
	for _, p := range r.Link(b).Proxies() {
		f(p)
	}
}

// Faults returns the faults that harm the connection of one backend only. A driver adds the
// faults of its servers.
func (r *Rig[L]) Faults() conformance.Faults {
	return conformance.Faults{
		Down: func(_ *testing.T, b backend.Backend) func() {
			r.Each(b, func(p *faultproxy.Proxy) { p.Refuse(true) })
			return func() { r.Each(b, func(p *faultproxy.Proxy) { p.Refuse(false) }) }
		},
		Freeze: func(_ *testing.T, b backend.Backend) func() {
			var thaws []func()
			r.Each(b, func(p *faultproxy.Proxy) { thaws = append(thaws, p.Freeze()) })
			return func() {
				for _, thaw := range thaws {
					thaw()
				}
			}
		},
		Swallow: func(_ *testing.T, b backend.Backend) func() {
			r.Each(b, func(p *faultproxy.Proxy) { p.Swallow(true) })
			return func() { r.Each(b, func(p *faultproxy.Proxy) { p.Swallow(false) }) }
		},
		Cut: func(_ *testing.T, b backend.Backend) { r.Each(b, (*faultproxy.Proxy).Cut) },
	}
}

// Declare creates a topic without settings.
func Declare(ctx context.Context, b backend.Backend, topic string) error {
	_, err := backend.Declare(ctx, b, topic, backend.Declaration{})
	return err
}
