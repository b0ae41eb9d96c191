package nats_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// While the client library waits seconds for a server's greeting, it blocks its callers.
// No call of the backend outlasts its context because of that.
func TestCallsEndWhileConnecting(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	p := faultproxy.New(t, s.Addr())
	u, err := url.Parse("nats://" + p.Addr())
	require.NoError(t, err)
	b, err := nats.Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Minute, MaxInFlight: 10})
	require.NoError(t, err)
	publish := func(ctx context.Context) error {
		return b.Publish(ctx, []*backend.Message{{Topic: "orders"}})
	}
	require.NoError(t, publish(t.Context()))
	ds, err := src.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	ds = slices.Clone(ds) // Receive reuses their memory
	calls := map[string]func(context.Context) error{
		"publish": publish,
		"receive": func(ctx context.Context) error { _, err := src.Receive(ctx, 1, 0); return err },
		"ack":     func(ctx context.Context) error { return src.Ack(ctx, backend.Lend(ds)) },
		"extend":  func(ctx context.Context) error { return src.(backend.Extender).Extend(ctx, backend.Lend(ds)) },
		"delay": func(ctx context.Context) error {
			return src.(backend.Delayer).Delay(ctx, []backend.Delayed{{Delivery: ds[0], For: time.Second}})
		},
		"attach": func(ctx context.Context) error {
			_, err := b.Attach(ctx, backend.Config{Topic: "orders", Group: "other", Lease: time.Minute, MaxInFlight: 10})
			return err
		},
		"stats":  func(ctx context.Context) error { _, err := b.Stats(ctx, "orders", "g"); return err },
		"read":   func(ctx context.Context) error { _, err := b.Read(ctx, "orders", "", 10); return err },
		"topics": func(ctx context.Context) error { _, err := b.Topics(ctx); return err },
		"ping":   b.Ping,
	}
	thaw := p.Freeze()
	p.Cut()
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() {
			for start := time.Now(); time.Since(start) < 2*time.Second; time.Sleep(time.Millisecond) {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				called := time.Now()
				err := call(ctx)
				cancel()
				if took := time.Since(called); err == nil || took > 1500*time.Millisecond {
					t.Errorf("%s took %v: %v", name, took, err)
				}
			}
		})
	}
	wg.Wait()
	thaw()
	require.Eventually(t, func() bool { return publish(t.Context()) == nil }, 20*time.Second, 10*time.Millisecond)
	ds, err = src.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
}

// A request of the JetStream API that is never answered is repeated, and ends before the
// caller's context, so that the bus can publish again.
func TestUnansweredRequestsEnd(t *testing.T) {
	t.Parallel()
	conn, err := natsgo.Connect(natstest.Start(t).URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	asked := make(chan *natsgo.Msg, 16)
	_, err = conn.ChanSubscribe("$JS.silent.API.>", asked) // nobody answers
	require.NoError(t, err)
	b, err := nats.New(conn, nats.Options{Domain: "silent"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	deleted := make(chan error, 1)
	go func() { deleted <- b.DeleteTopic(ctx, "other") }() // a request that is not repeated
	err = b.Publish(ctx, []*backend.Message{{Topic: "orders"}})
	require.NoError(t, ctx.Err(), "the call ended before its context: %v", err)
	require.ErrorIs(t, backend.ErrorAt(err, 0), backend.ErrUnavailable)
	require.True(t, backend.NotStored(backend.ErrorAt(err, 0)))
	err = <-deleted
	require.NoError(t, ctx.Err(), "the call ended before its context: %v", err)
	require.ErrorIs(t, err, backend.ErrUnknownOutcome)
	times := map[string]int{} // how often each request was sent
	for len(asked) > 0 {
		times[strings.TrimPrefix((<-asked).Subject, "$JS.silent.API.")]++
	}
	require.Greater(t, times["STREAM.INFO.bus=orders"], 1, "Publish repeats its request")
	require.Equal(t, 1, times["STREAM.DELETE.bus=other"], "DeleteTopic does not")
}

// Calls that wait for the client library when the connection is lost again have sent nothing,
// and say so.
func TestWaitingCallsAreNotStored(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, natstest.Start(t).Addr())
	b, conn, err := nats.Connect("nats://"+p.Addr(), nats.Options{}, natstest.Client(t), natsgo.MaxReconnects(-1), natsgo.ReconnectBufSize(-1), natsgo.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
	for range 5 {
		lost := conn.StatusChanged(natsgo.RECONNECTING)
		thaw := p.Freeze()
		p.Cut()
		<-lost
		conn.RemoveStatusListener(lost)
		errs := make(chan error, 10)
		for range cap(errs) {
			go func() { errs <- b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}) }()
		}
		time.Sleep(300 * time.Millisecond) // the library dials, and holds the calls up
		p.Cut()
		for range cap(errs) {
			if err := <-errs; err != nil {
				require.True(t, backend.NotStored(backend.ErrorAt(err, 0)), "%v", err)
			}
		}
		thaw()
		require.Eventually(t, conn.IsConnected, 20*time.Second, 10*time.Millisecond)
	}
}

// If the connection is down, only the messages that could have been sent are unavailable. The
// others keep their own errors.
func TestUnsendableMessagesKeepTheirErrors(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, natstest.Start(t).Addr())
	b, conn, err := nats.Connect("nats://"+p.Addr(), nats.Options{}, natstest.Client(t), natsgo.MaxReconnects(-1), natsgo.ReconnectBufSize(-1))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
	p.Refuse(true)
	p.Cut()
	require.Eventually(t, func() bool { return !conn.IsConnected() }, 5*time.Second, 10*time.Millisecond)
	large := make([]byte, 2<<20)
	err = b.Publish(t.Context(), []*backend.Message{{Topic: "orders", Payload: large}, {Topic: "orders"}})
	require.ErrorIs(t, backend.ErrorAt(err, 0), backend.ErrTooLarge)
	require.ErrorIs(t, backend.ErrorAt(err, 1), backend.ErrUnavailable)
}

// A connection that fails in its first exchange, such as a refused login, is closed. The
// client library does not close it, and dials again ten times a second.
func TestFailedReconnectsLeaveNoConnections(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	b, err := nats.Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	s.Kill()
	refuser, err := net.Listen("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, refuser.Close()) })
	var refused []net.Conn
	for range 5 {
		conn, err := refuser.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.Write([]byte("-ERR 'Authorization Violation'\r\n"))
		require.NoError(t, err)
		refused = append(refused, conn)
	}
	for i, conn := range refused[:4] {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
		_, err := conn.Read(make([]byte, 1))
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "connection %d is still open", i)
	}
}
