package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// connect opens a connection that reconnects for ever, buffers nothing while it is down,
// and detects a silent server within seconds. A write or a dial blocks for seconds at
// most. end closes the connection at once.
func (a *address) connect(ctx context.Context) (conn *natsgo.Conn, end func(), err error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	opened := context.AfterFunc(ctx, end)
	d := &dialer{life: life}
	options := []natsgo.Option{
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100 * time.Millisecond), natsgo.ReconnectBufSize(-1),
		natsgo.IgnoreAuthErrorAbort(),                                           // accounts may change: an unknown user may be known again
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}), // the default handler writes to stderr
		natsgo.PingInterval(2 * time.Second), natsgo.MaxPingsOutstanding(2),
		natsgo.FlusherTimeout(2 * time.Second), natsgo.ReconnectOnFlusherError(),
		natsgo.SetCustomDialer(d), natsgo.SkipHostLookup(), natsgo.Timeout(answer),
	}
	if a.login != nil {
		options = append(options, a.login)
	}
	if a.inbox != "" {
		options = append(options, natsgo.CustomInboxPrefix(a.inbox))
	}
	if a.config != nil {
		options = append(options, natsgo.Secure(a.config))
	}
	conn, err = natsgo.Connect(strings.Join(a.addrs, ","), options...)
	if !opened() && err == nil {
		conn.Close()
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, nil, a.explain(err, classOf(ctx, err, false), d.connected.Load())
	}
	return conn, end, nil
}

// explain extends an error if the URL's scheme does not fit the server.
func (a *address) explain(err, classed error, connected bool) error {
	var late net.Error
	switch {
	case errors.Is(err, natsgo.ErrSecureConnWanted):
		return fmt.Errorf("%w: the server has no TLS, so the URL's scheme must be nats, not tls", classed)
	case !a.tls && errors.Is(err, natsgo.ErrTLS):
		return fmt.Errorf("%w: the server requires TLS, so the URL's scheme must be tls, not nats", classed)
	case connected && !errors.Is(err, natsgo.ErrTLS) && errors.As(classed, &late) && late.Timeout():
		return fmt.Errorf("%w: the server has said nothing: is this a port of NATS? A port that waits for TLS from the first byte on is none", classed)
	}
	return classed
}

// A dialer connects to servers. Its connections are closed when life ends.
type dialer struct {
	life      context.Context
	connected atomic.Bool // once
}

// Dial implements the client library's CustomDialer.
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: answer}).DialContext(d.life, network, addr)
	if err != nil {
		return nil, err
	}
	d.connected.Store(true)
	return &dialed{conn, context.AfterFunc(d.life, func() { _ = conn.Close() })}, nil
}

// A dialed connection, once closed, stops watching the dialer's life.
type dialed struct {
	net.Conn
	forget func() bool
}

func (c *dialed) Close() error {
	c.forget()
	return c.Conn.Close()
}
