package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/proxyrig"
	"github.com/seed41896749/eventbus/nats"
)

// permissions is the part of a server's configuration that docs/nats.md shows.
func permissions(t *testing.T) string {
	doc, err := os.ReadFile("../docs/nats.md")
	require.NoError(t, err)
	_, block, _ := strings.Cut(string(doc), "<!-- acl -->")
	block, _, ok := strings.Cut(block, "<!-- /acl -->")
	require.True(t, ok)
	return strings.Trim(strings.TrimSpace(block), "`")
}

// A rule is a subject that a role may use, in one line of the permissions.
type rule struct{ role, subject, line string }

func rules(t *testing.T) (all []rule) {
	role := ""
	for line := range strings.Lines(permissions(t)) {
		if m := regexp.MustCompile(`^  (\w+): \{$`).FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			role = m[1]
		}
		if m := regexp.MustCompile(`"(.*)"`).FindStringSubmatch(line); m != nil {
			all = append(all, rule{role, m[1], line})
		}
	}
	return all
}

// guarded starts a server with permissions. A client without a name is the owner, who may
// do everything and prepares the test.
func guarded(t *testing.T, permissions string) *natstest.Server {
	text := regexp.MustCompile(`\$\w+_PASSWORD`).ReplaceAllLiteralString(permissions, "secret")
	text = strings.Replace(text, "users: [", "users: [\n    {user: owner, password: secret}", 1) + "\nno_auth_user: owner\n"
	file := filepath.Join(t.TempDir(), "server.conf")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return natstest.Start(t, "-c", file)
}

// as opens a backend for a role; the empty role is the owner.
func as(t *testing.T, s *natstest.Server, role string) (*nats.Backend, error) {
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	if role != "" {
		u.User = url.UserPassword(role, "secret")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	b, err := nats.Open(ctx, u)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, b.Close()) })
	}
	return b, err
}

const topic, group, dead = "shop.orders", "billing", "shop.dead"

// A flow is a role's whole work. The owner has stored three messages in the topic; the
// group has settled one.
type flow func(ctx context.Context, b *nats.Backend) error

var flows = map[string]flow{
	"publisher": func(ctx context.Context, b *nats.Backend) error {
		return errors.Join(publishTo(ctx, b, topic), publishTo(ctx, b, "another"), proxyrig.Declare(ctx, b, "a.third"))
	},
	"consumer": func(ctx context.Context, b *nats.Backend) error { return consume(ctx, b, topic, group) },
	"redriver": func(ctx context.Context, b *nats.Backend) error {
		letters, err := deadletter.Open(b, dead)
		if err != nil {
			return err
		}
		classes, err := letters.Classes(ctx, deadletter.Filter{})
		report, err2 := letters.Redrive(ctx, deadletter.Redrive{})
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if left, err := letters.Classes(ctx, deadletter.Filter{}); err != nil || len(classes) != 1 || report.Redriven != 1 || len(left) > 0 {
			return fmt.Errorf("wrong: %v %+v %v %w", classes, report, left, err)
		}
		return nil
	},
	"operator": func(ctx context.Context, b *nats.Backend) error {
		topics, err := b.Topics(ctx)
		groups, err2 := b.Groups(ctx, topic)
		ms, err3 := b.Read(ctx, topic, "", 10)
		stats, err4 := b.Stats(ctx, topic, group)
		if err := errors.Join(err, err2, err3, err4); err != nil {
			return err
		}
		if !slices.Contains(topics, topic) || len(groups) != 1 || len(ms) != 3 || stats.Lag != 2 || stats.Oldest.IsZero() {
			return fmt.Errorf("wrong: %v %v %v %+v", topics, groups, ms, stats)
		}
		_, err = b.Settle(ctx, topic, group, ms[0].Position)
		err = errors.Join(err, b.Pause(ctx, topic, group, backend.Pause{By: "ann"}), b.Resume(ctx, topic, group))
		return errors.Join(err, b.Remove(ctx, topic, []string{ms[0].Position}), b.ResetGroup(ctx, topic, group, backend.StartLatest), b.DeleteGroup(ctx, topic, group), b.DeleteTopic(ctx, topic))
	},
}

func publishTo(ctx context.Context, b *nats.Backend, topic string) error {
	return b.Publish(ctx, []*backend.Message{{Topic: topic, ID: "x", Once: true}})
}

// consume attaches, receives, settles in each way, publishes to a new dead-letter topic,
// and maintains.
func consume(ctx context.Context, b *nats.Backend, topic, group string) error {
	source, err := b.Attach(ctx, backend.Config{Topic: topic, Group: group, Lease: 20 * time.Second}) // longer than the owner's
	if err != nil {
		return err
	}
	defer source.Close()
	take := func(n int) (ds []backend.Delivery, err error) {
		for len(ds) < n && err == nil {
			var got []backend.Delivery
			got, err = source.Receive(ctx, n-len(ds), 0)
			ds = append(ds, got...)
			err = errors.Join(err, ctx.Err())
		}
		return ds, err
	}
	ds, err := take(2)
	if err != nil {
		return err
	}
	delayer, _ := backend.As[backend.Delayer](source)
	extender, _ := backend.As[backend.Extender](source)
	err = errors.Join(extender.Extend(ctx, backend.Lend(ds)), source.Ack(ctx, backend.Lend(ds[:1])), delayer.Delay(ctx, []backend.Delayed{{Delivery: ds[1]}}))
	if err != nil {
		return err
	}
	again, err := take(1)
	if err != nil {
		return err
	}
	err = errors.Join(source.Ack(ctx, backend.Lend(again)), proxyrig.Declare(ctx, b, topic+".dlq"), publishTo(ctx, b, topic+".dlq"))
	if err != nil {
		return err
	}
	_, err = b.Maintain(ctx, topic, group)
	return err
}

// prepared starts a server on which the owner has stored three messages, of which
// the group has settled one, and a dead letter.
func prepared(t *testing.T, permissions string) *natstest.Server {
	server := guarded(t, permissions)
	owner, err := as(t, server, "")
	require.NoError(t, err)
	source, err := owner.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: 10 * time.Second})
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, owner.Publish(t.Context(), []*backend.Message{{Topic: topic, ID: fmt.Sprint(i)}}))
	}
	require.NoError(t, owner.Publish(t.Context(), []*backend.Message{{Topic: dead, ID: "a", Headers: backend.Headers{
		{Name: letter.Reason, Value: eventbus.ReasonExhausted},
		{Name: letter.Topic, Value: topic},
		{Name: letter.Group, Value: group},
		{Name: letter.ID, Value: "0"},
	}}}))
	ds, err := source.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	require.NoError(t, source.Ack(t.Context(), backend.Lend(ds)))
	require.NoError(t, source.Close())
	return server
}

// works runs a role's whole flow.
func works(t *testing.T, server *natstest.Server, role string) error {
	b, err := as(t, server, role)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return flows[role](ctx, b)
}

// X02: the documented permissions suffice for each role's flow, and each rule is needed.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	text := permissions(t)
	for role := range flows {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, works(t, prepared(t, text), role))
		})
	}
	for _, r := range rules(t) {
		t.Run(r.role+" without "+r.subject, func(t *testing.T) {
			t.Parallel()
			without := strings.Replace(r.line, r.subject, "nothing", 1)
			head, tail, found := strings.Cut(text, "  "+r.role+": {")
			require.True(t, found)
			err := works(t, prepared(t, head+"  "+r.role+": {"+strings.Replace(tail, r.line, without, 1)), r.role)
			require.Error(t, err, "%s is not needed", r.subject)
			if !slices.Contains([]string{"_INBOX.>", "$JS.API.STREAM.INFO.*"}, r.subject) { // these have other errors
				require.ErrorIs(t, err, backend.ErrDenied)
			}
		})
	}
}

// A role may not do the work of another role.
func TestRolesAreDeniedTheRest(t *testing.T) {
	t.Parallel()
	server := prepared(t, permissions(t))
	open := func(role string) *nats.Backend {
		b, err := as(t, server, role)
		require.NoError(t, err)
		return b
	}
	publisher, consumer, redriver, operator := open("publisher"), open("consumer"), open("redriver"), open("operator")
	c := backend.Config{Topic: topic, Group: group, Lease: 10 * time.Second}
	denied := func(_ any, err error) {
		t.Helper()
		require.ErrorIs(t, err, backend.ErrDenied)
	}
	ctx := t.Context()
	denied(publisher.Attach(ctx, c))
	denied(publisher.Read(ctx, topic, "", 10))
	denied(nil, publisher.DeleteTopic(ctx, topic))
	denied(consumer.Topics(ctx))
	denied(nil, consumer.ResetGroup(ctx, topic, group, backend.StartEarliest))
	denied(nil, consumer.DeleteGroup(ctx, topic, group))
	denied(nil, consumer.Pause(ctx, topic, group, backend.Pause{}))
	denied(redriver.Settle(ctx, topic, group, "00000000000000000001"))
	denied(consumer.Declare(ctx, topic, backend.Declaration{Settings: backend.TopicSettings{Keep: time.Hour}}))
	denied(nil, consumer.DeleteTopic(ctx, topic))
	denied(nil, publishTo(ctx, operator, topic))
	denied(nil, proxyrig.Declare(ctx, operator, "new"))
	denied(operator.Maintain(ctx, topic, group))
	letters, err := deadletter.Open(operator, dead)
	require.NoError(t, err)
	denied(letters.Redrive(ctx, deadletter.Redrive{}))
	n, err := letters.Discard(ctx, deadletter.Filter{})
	require.NoError(t, err)
	require.Equal(t, 1, n, "the letter was still there")
	denied(nil, redriver.DeleteTopic(ctx, topic))
	denied(redriver.Attach(ctx, c))
	source, err := operator.Attach(ctx, c) // not denied, because the role may reset groups
	require.NoError(t, err)
	denied(source.Receive(ctx, 1, 0))
	require.NoError(t, source.Close())

	u, err := url.Parse(server.URL() + "?namespace=others")
	require.NoError(t, err)
	u.User = url.UserPassword("publisher", "secret")
	elsewhere, err := nats.Open(ctx, u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, elsewhere.Close()) })
	denied(nil, publishTo(ctx, elsewhere, topic))
}

// Permissions can name single topics and groups, without permission to create them.
func TestExactSubjects(t *testing.T) {
	t.Parallel()
	exact := regexp.MustCompile(`(?m)^ *"\$JS\.API\.STREAM\.CREATE\.\*"\n`).ReplaceAllLiteralString(permissions(t), "")
	exact = strings.NewReplacer(
		`"bus.>"`, `"bus.shop.orders", "bus.shop.orders.dlq"`,
		`"$JS.ACK.>"`, `"$JS.ACK.bus=shop+orders.billing.>"`,
		`.*.*"`, `.bus=shop+orders.billing"`,
		`STREAM.INFO.*"`, `STREAM.INFO.bus=shop+orders", "$JS.API.STREAM.INFO.bus=shop+orders+dlq"`,
		`.*"`, `.bus=shop+orders"`,
	).Replace(exact)
	server := prepared(t, exact)
	owner, err := as(t, server, "")
	require.NoError(t, err)
	require.NoError(t, proxyrig.Declare(t.Context(), owner, topic+".dlq"))
	require.NoError(t, works(t, server, "consumer"))
	publisher, err := as(t, server, "publisher")
	require.NoError(t, err)
	require.NoError(t, publishTo(t.Context(), publisher, topic))
	require.ErrorIs(t, publishTo(t.Context(), publisher, "another"), backend.ErrDenied)
	consumer, err := as(t, server, "consumer")
	require.NoError(t, err)
	_, err = consumer.Attach(t.Context(), backend.Config{Topic: topic, Group: "shipping", Lease: 10 * time.Second})
	require.ErrorIs(t, err, backend.ErrDenied)
}

// Publishing to an existing topic needs permission for its subject only.
func TestPublishingNeedsNoMore(t *testing.T) {
	t.Parallel()
	text := permissions(t)
	head, tail, found := strings.Cut(text, "  publisher: {")
	require.True(t, found)
	tail = strings.Replace(tail, `"$JS.API.STREAM.INFO.*"`, "", 1)
	server := prepared(t, head+"  publisher: {"+strings.Replace(tail, `"$JS.API.STREAM.CREATE.*"`, "", 1))
	b, err := as(t, server, "publisher")
	require.NoError(t, err)
	require.NoError(t, publishTo(t.Context(), b, topic))
	require.Error(t, publishTo(t.Context(), b, "another"))
}

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
		{"declare", "bus.>", func(ctx context.Context, b *nats.Backend, _ backend.Source) error {
			return proxyrig.Declare(ctx, b, topic)
		}},
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
