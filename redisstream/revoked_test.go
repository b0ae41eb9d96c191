package redisstream_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// F14: an account that is removed while it is used gets an error, without a hot loop.
// Everything continues when the account is back.
func TestRevokedAccountIsDeniedAndHeals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	all := rules(t)
	grant := func() {
		server.User(t, "app", "secret", append(slices.Clone(all["consumer"]), all["publisher"]...)...)
	}
	grant()
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	b := open(t, dialAs(t, proxy.Addr(), "app", "secret"), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 1))
	ds := receive(t, s, 1)

	driver := open(t, dialAs(t, proxy.Addr(), "app", "secret"), redisstream.Options{})
	bus := eventbustest.On(t, driver, eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) })
	handled := make(chan string, 10)
	_, err := bus.Subscribe(t.Context(), "bus", eventbus.SubscribeOptions{Group: workers, Lease: lease}, func(_ context.Context, d *eventbus.Delivery) error {
		handled <- d.ID
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, bus.Publish(t.Context(), "bus", &eventbus.Event{ID: "before"}))
	require.Equal(t, "before", <-handled)

	server.Revoke("app")
	require.Eventually(t, func() bool { return errors.Is(b.Publish(t.Context(), batch("b", 1)), backend.ErrDenied) }, 5*time.Second, 10*time.Millisecond)
	for range 3 {
		_, err := s.Receive(t.Context(), 1, 0)
		require.ErrorIs(t, err, backend.ErrDenied)
		require.ErrorIs(t, b.Publish(t.Context(), once(batch("b", 1))), backend.ErrDenied)
		require.ErrorIs(t, s.Ack(t.Context(), backend.Lend(ds)), backend.ErrDenied)
	}
	require.Eventually(t, func() bool { return bus.Ready(t.Context()) != nil }, 10*time.Second, 20*time.Millisecond)
	before := total(proxy)
	pause(2 * time.Second)
	said := total(proxy) - before
	t.Logf("%d commands in 2 s of a subscription that is denied", said)
	require.Less(t, said, int64(100), "commands of a subscription that is denied, in 2 s")

	grant()
	require.Eventually(t, func() bool { return b.Publish(t.Context(), batch("c", 1)) == nil }, 5*time.Second, 20*time.Millisecond)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	require.Equal(t, "c-0", receive(t, s, 1)[0].ID)
	require.Eventually(t, func() bool {
		return bus.Publish(t.Context(), "bus", &eventbus.Event{ID: "after"}) == nil
	}, 20*time.Second, 50*time.Millisecond)
	got := <-handled
	for got == "before" { // its acknowledgement came too late
		got = <-handled
	}
	require.Equal(t, "after", got)
	require.Eventually(t, func() bool { return bus.Ready(t.Context()) == nil }, 20*time.Second, 20*time.Millisecond)
}

func total(p *faultproxy.Proxy) (n int64) {
	for _, count := range p.Commands() {
		n += count
	}
	return n
}
