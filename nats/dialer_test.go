package nats

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A lateContext is one during whose use something happens.
type lateContext struct {
	context.Context
	then func()
}

func (c lateContext) Deadline() (time.Time, bool) {
	c.then()
	return c.Context.Deadline()
}

// A connection that is being made while opening ends is not bound to the context of
// that, which would end it later.
func TestConnectionOutlivesOpening(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	d := dialer{tap: newTap()}
	d.opening = lateContext{t.Context(), d.opened}
	conn, err := d.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	require.Empty(t, d.keep)
	require.NoError(t, conn.Close())
}

// A tap that is none leaves a connection as it is.
func TestNoTap(t *testing.T) {
	t.Parallel()
	conn := &wire{}
	var none *tap
	require.Same(t, conn, none.on(conn))
}
