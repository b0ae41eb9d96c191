package redisstream_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// These tests are about a member that continues after a call without an answer, such as a
// call under way when its server was killed. The lease is long. So a message is
// redelivered only because the member knows what to ask for.

func interrupted(t *testing.T) (*redisstream.Backend, member, *faultproxy.Proxy) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	loaded(t, server)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	c := config()
	c.Lease = time.Minute
	return b, attach(t, b, c), proxy
}

// loseReply loses the answer of the next Receive that sends the given request.
func loseReply(t *testing.T, s member, proxy *faultproxy.Proxy, request string) {
	t.Helper()
	proxy.DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte(request)) })
	for {
		ds, err := s.Receive(t.Context(), 100, 0)
		require.Empty(t, ds)
		if err != nil {
			require.ErrorIs(t, err, backend.ErrUnknownOutcome)
			return
		}
	}
}

type attempt struct {
	id string
	n  int
}

func attempts(ds []backend.Delivery) (all []attempt) {
	for _, d := range ds {
		all = append(all, attempt{d.ID, d.Attempt})
	}
	return all
}

// The messages of a read whose answer is lost are delivered next, in the order of
// positions and at the same attempt. Messages that the member holds are not redelivered.
func TestLostReadComesAgainNext(t *testing.T) {
	t.Parallel()
	b, s, proxy := interrupted(t)
	publish(t, b, batch("held", 3))
	held := receive(t, s, 3)
	old := []backend.Delayed{{Delivery: held[2], For: time.Second, Refund: true}}
	held = held[:2]
	publish(t, b, batch("lost", 150)) // more than one run of the script delivers
	require.NoError(t, s.Delay(t.Context(), old))
	loseReply(t, s, proxy, "\r\nxreadgroup\r\n")
	pause(time.Second)
	publish(t, b, batch("new", 1))
	ds := receive(t, s, 152)
	want := []attempt{{"held-2", 1}}
	for _, m := range append(batch("lost", 150), batch("new", 1)...) {
		want = append(want, attempt{m.ID, 1})
	}
	require.Equal(t, want, attempts(ds))
	nothing(t, s, 600*time.Millisecond)
	require.NoError(t, s.Extend(t.Context(), backend.Lend(append(held, ds...))), "the member holds all of it")
}

// Redelivered messages whose answer is lost are delivered next, even if a second answer is lost.
func TestLostTakeComesAgainNext(t *testing.T) {
	t.Parallel()
	b, s, proxy := interrupted(t)
	publish(t, b, batch("a", 6))
	ds := receive(t, s, 6)
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[1]}, {Delivery: ds[4], Refund: true}}))
	back := receive(t, s, 2)
	require.Equal(t, []attempt{{"a-1", 2}, {"a-4", 1}}, attempts(back))
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[0]}, {Delivery: ds[3], Refund: true}, {Delivery: back[0]}}))
	loseReply(t, s, proxy, redisstream.TakeDigest)
	publish(t, b, batch("new", 1))
	loseReply(t, s, proxy, redisstream.TakeDigest)
	again := receive(t, s, 4)
	require.Equal(t, []attempt{{"a-0", 2}, {"a-1", 3}, {"a-3", 1}, {"new-0", 1}}, attempts(again))
	nothing(t, s, 600*time.Millisecond)
	held := append([]backend.Delivery{ds[2], ds[5], back[1]}, again...)
	require.NoError(t, s.Extend(t.Context(), backend.Lend(held)), "the member holds all of it")
	require.NoError(t, s.Ack(t.Context(), backend.Lend(held)))
}

// A Delay that was not carried out can be repeated, with a Refund too. It settles no other
// delivery that the member has received since.
func TestRefundThatWasNotCarriedOutIsRepeated(t *testing.T) {
	t.Parallel()
	b, s, proxy := interrupted(t)
	publish(t, b, batch("a", 2))
	ds := receive(t, s, 2)
	again := []backend.Delayed{{Delivery: ds[0], Refund: true}}
	thaw := proxy.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, backend.ErrorAt(s.Delay(ctx, again), 0), backend.ErrUnknownOutcome)
	proxy.Cut()
	thaw()
	require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, s.Delay(t.Context(), again))
	publish(t, b, batch("new", 1))
	require.Equal(t, []attempt{{"a-0", 1}, {"new-0", 1}}, attempts(receive(t, s, 2)))
}

// An Ack that is repeated after its answer was lost returns nil. It does not for a message
// that another member may have acknowledged.
func TestLostAckIsConfirmedWithinTheLease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	loaded(t, server)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	lose := func(s member, id string) []*backend.Delivery {
		publish(t, b, batch(id, 1))
		ds := backend.Lend(receive(t, s, 1))
		d := *ds[0] // the slice is lent
		proxy.DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte(redisstream.AckDigest)) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, backend.ErrorAt(s.Ack(ctx, ds), 0), backend.ErrUnknownOutcome)
		return []*backend.Delivery{&d}
	}
	c := config()
	c.Group, c.Lease, c.ConfirmAcks = "long", time.Minute, true
	s := attach(t, b, c)
	d := lose(s, "a")
	require.NoError(t, s.Ack(t.Context(), d))
	require.ErrorIs(t, backend.ErrorAt(s.Ack(t.Context(), d), 0), backend.ErrLeaseLost, "it was confirmed before")

	d = lose(s, "forgotten")
	require.NoError(t, dial(t, server.Addr()).XGroupSetID(t.Context(), stream, c.Group, "0").Err()) // as after a failover
	require.ErrorIs(t, backend.ErrorAt(s.Ack(t.Context(), d), 0), backend.ErrLeaseLost, "the server has forgotten the delivery, so it redelivers the message")

	c = config()
	c.Group, c.Start, c.ConfirmAcks = "short", backend.StartLatest, true
	s = attach(t, b, c)
	other := attach(t, open(t, dial(t, server.Addr()), redisstream.Options{}), c)
	d = lose(s, "b")
	pause(c.Lease)
	require.ErrorIs(t, backend.ErrorAt(s.Ack(t.Context(), d), 0), backend.ErrLeaseLost, "its lease has expired")
	nothing(t, other, 600*time.Millisecond)
}
