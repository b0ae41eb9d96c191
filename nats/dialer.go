package nats

import (
	"context"
	"net"
	"sync"
)

// A dialer connects to servers. While a backend is opened, the context of that
// bounds each connection; those that come later have a time, and the life of the link.
type dialer struct {
	tap *tap // of each connection

	mu      sync.Mutex
	opening context.Context // nil once the backend is open
	keep    []func() bool   // of what ends connections with opening
}

// Dial implements the client's CustomDialer.
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	d.tap.connecting.Store(true)
	conn, err := d.dial(network, addr)
	if err != nil {
		d.tap.connecting.Store(false)
		return nil, err
	}
	return d.tap.on(conn), nil
}

func (d *dialer) dial(network, addr string) (net.Conn, error) {
	d.mu.Lock()
	ctx := d.opening
	d.mu.Unlock()
	to := net.Dialer{Timeout: answer}
	if ctx == nil {
		return to.DialContext(d.tap.life, network, addr)
	}
	conn, err := to.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opening != nil { // still
		d.keep = append(d.keep, context.AfterFunc(ctx, func() { conn.Close() }))
	}
	return conn, nil
}

// opened ends what binds connections to the context of opening.
func (d *dialer) opened() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, keep := range d.keep {
		keep()
	}
	d.opening, d.keep = nil, nil
}
