package nats

import (
	"context"
	"net/url"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// If the connection is lost while the sender sends the messages of a call, the library may
// have a new connection for the next of them. The sender does not use it, because the broker
// would store a message of a key without an earlier one.
func TestNothingIsSentAfterALostConnection(t *testing.T) {
	t.Parallel()
	s := newFixture(t).sender
	sent := make(chan error, 2)
	s.do(func() {
		sent <- s.publish(&outgoing{subject: "first"})
		s.status <- natsgo.RECONNECTING
		sent <- s.publish(&outgoing{subject: "second"})
	})
	require.NoError(t, <-sent)
	require.ErrorIs(t, <-sent, errNotConnected)
}

// A held has a backend whose client library is dialing a silent server and holds its lock in
// the meantime.
type held struct {
	*Backend
	conn *natsgo.Conn
	thaw func()
}

func newHeld(t *testing.T) *held {
	s := natstest.Start(t)
	p := faultproxy.New(t, s.Addr())
	conn, err := natsgo.Connect("nats://"+p.Addr(), natsgo.ReconnectBufSize(-1), natsgo.MaxReconnects(-1), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b, err := New(conn, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{typical()}))
	h := &held{b, conn, p.Freeze()}
	t.Cleanup(h.thaw) // before the other clean-ups: Close waits for the library
	require.NoError(t, conn.ForceReconnect())
	require.Eventually(t, func() bool { return !isFree(conn) }, 20*time.Second, time.Millisecond, "the library holds up nobody")
	return h
}

// isFree reports whether the client library answers soon.
func isFree(conn *natsgo.Conn) bool {
	free := make(chan struct{})
	go func() {
		conn.IsConnected()
		close(free)
	}()
	select {
	case <-free:
		return true
	case <-time.After(500 * time.Millisecond): // longer than on a busy machine
		return false
	}
}

// A Publish that is blocked by the client library ends soon after its context. Its
// messages are no longer read, and the unsent ones are not sent once the library
// continues.
func TestPublishLeavesTheLibrary(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		start, m := time.Now(), typical()
		err := h.Publish(ctx, []*backend.Message{m})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, backend.NotStored(backend.ErrorAt(err, 0)), "%v", err)
		require.Less(t, time.Since(start), 10*time.Second)
		m.Headers[0].Value = "its caller's again"
		clear(m.Payload)
	}
	require.False(t, isFree(h.conn), "the library has held up nobody: the test shows nothing")
	h.thaw()
	require.Eventually(t, func() bool {
		return h.Publish(t.Context(), []*backend.Message{typical()}) == nil
	}, 20*time.Second, time.Millisecond)
	ms, err := h.Read(t.Context(), "orders", "", 100)
	require.NoError(t, err)
	require.Len(t, ms, 2, "the first and the last")
}

// Close of an opened backend returns while the client library waits for a server's
// greeting.
func TestCloseWhileConnecting(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.publish(1)
	s.receive(1, 1)
	defer s.hush()()
	require.Eventually(t, func() bool { return !isFree(s.conn) }, 20*time.Second, time.Millisecond)
	closed := make(chan error, 1)
	start := time.Now()
	go func() { closed <- s.Close() }()
	require.NoError(t, <-closed)
	require.Less(t, time.Since(start), answerTimeout, "it does not wait for the greeting")
}

// Close of an opened backend ends the calls that wait for an answer.
func TestCloseEndsPublish(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, natstest.Start(t).Addr())
	u, err := url.Parse("nats://" + p.Addr())
	require.NoError(t, err)
	b, err := Open(t.Context(), u)
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{typical()}))
	p.Swallow(true)
	sent := b.conn.Stats().OutMsgs
	published := make(chan error, 1)
	go func() { published <- b.Publish(t.Context(), []*backend.Message{typical()}) }()
	require.Eventually(t, func() bool { return b.conn.Stats().OutMsgs > sent }, 5*time.Second, time.Millisecond)
	require.NoError(t, b.Close())
	start := time.Now()
	require.ErrorIs(t, backend.ErrorAt(<-published, 0), backend.ErrUnknownOutcome)
	require.Less(t, time.Since(start), answerTimeout/2)
}

// A message that is too large only because of its escaped headers is refused here: the
// server would close the connection.
func TestTooLargeAsItIsWritten(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	m := typical()
	m.Headers.Set("note", string(make([]byte, 40<<10))) // escaped: three times as long
	m.Payload = nil
	m.Payload = make([]byte, backend.LimitsOf(s.Backend).Payload-m.Size())
	before := s.conn.Stats()
	err := s.Publish(t.Context(), []*backend.Message{typical(), m, typical()})
	require.NoError(t, backend.ErrorAt(err, 0))
	require.ErrorIs(t, backend.ErrorAt(err, 1), backend.ErrTooLarge)
	require.NoError(t, backend.ErrorAt(err, 2))
	require.Equal(t, before.Reconnects, s.conn.Stats().Reconnects)
}
