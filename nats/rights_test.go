package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// without configures a server with one user, who may publish on all subjects but one.
func without(subject string) string {
	return fmt.Sprintf("authorization { users: [ {user: u, password: p, permissions: {publish: {allow: \">\", deny: [%q]}}} ] }\n", subject)
}

// A permission that is revoked while a program runs causes ErrDenied within seconds, not
// at the call's timeout. Once it is granted again, everything continues.
func TestRightsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, subject string
		use           func(ctx context.Context, b *nats.Backend, s backend.Source) error
	}{
		{"pull", "$JS.API.CONSUMER.MSG.NEXT.>", func(ctx context.Context, _ *nats.Backend, s backend.Source) error {
			_, err := s.Receive(ctx, 10, 0)
			return err
		}},
		{"publish", "bus.>", func(ctx context.Context, b *nats.Backend, _ backend.Source) error {
			return backend.ErrorAt(b.Publish(ctx, []*backend.Message{{Topic: topic}}), 0)
		}},
		{"declare", "bus.>", func(ctx context.Context, b *nats.Backend, _ backend.Source) error { return declare(ctx, b, topic) }},
		{"ask", "$JS.API.STREAM.INFO.>", func(ctx context.Context, b *nats.Backend, _ backend.Source) error {
			_, err := b.Read(ctx, topic, "", 10)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := natstest.StartConfigured(t, without("nothing"))
			u, err := url.Parse("nats://u:p@" + server.Addr())
			require.NoError(t, err)
			b, err := nats.Open(t.Context(), u)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Minute})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, c.use(ctx, b, s))

			server.Reload(without(c.subject))
			for err = nil; err == nil || !errors.Is(err, backend.ErrDenied); err = c.use(ctx, b, s) {
				require.NoError(t, ctx.Err())
			}
			require.True(t, backend.NotStored(err))

			server.Reload(without("nothing"))
			for err = c.use(ctx, b, s); err != nil; err = c.use(ctx, b, s) {
				require.NoError(t, ctx.Err())
			}
		})
	}
}

// A client that may not subscribe to its inbox does not learn the outcome of a message that it
// has sent. Later ones are refused before they are sent.
func TestInboxRefused(t *testing.T) {
	t.Parallel()
	rights := func(denied string) string {
		return fmt.Sprintf("authorization { users: [ {user: u, password: p, permissions: {publish: \">\", subscribe: {allow: \">\", deny: [%q]}}} ] }\n", denied)
	}
	server := natstest.StartConfigured(t, rights("nothing"))
	u, err := url.Parse("nats://u:p@" + server.Addr())
	require.NoError(t, err)
	b, err := nats.Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	confirmed := 0
	publish := func() error {
		err := backend.ErrorAt(b.Publish(ctx, []*backend.Message{{Topic: topic}}), 0)
		if err == nil {
			confirmed++
		}
		return err
	}
	require.NoError(t, publish())
	server.Reload(rights("_INBOX.>"))
	for err = nil; !errors.Is(err, backend.ErrUnknownOutcome); err = publish() {
		require.NoError(t, ctx.Err())
		require.NotErrorIs(t, err, backend.ErrDenied, "it is stored")
	}
	require.True(t, backend.NotStored(publish()))
	for err = nil; !errors.Is(err, backend.ErrDenied); err = b.Ping(ctx) { // nothing is stored
		require.NoError(t, ctx.Err())
	}
	server.Reload(rights("nothing"))
	for err = publish(); err != nil; err = publish() {
		require.NoError(t, ctx.Err())
	}
	ms, err := b.Read(ctx, topic, "", 1000)
	require.NoError(t, err)
	require.Greater(t, len(ms), confirmed, "the message without an outcome is stored")
}
