package redisstream_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/proxyrig"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// rulesFile holds the rules of each role; docs/redis.md quotes it.
const rulesFile = "testdata/acl.txt"

// rules returns the ACL rules of each role and, under "role optional", the rules that it
// can do without.
func rules(t testing.TB) map[string][]string {
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if role, list, ok := strings.Cut(line, ": "); ok && line[0] != '#' {
			all[role] = strings.Fields(list)
		}
	}
	return all
}

func TestDocumentationHasTheRules(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/redis.md")
	require.NoError(t, err)
	_, block, _ := strings.Cut(string(doc), "<!-- acl -->")
	block, _, ok := strings.Cut(block, "<!-- /acl -->")
	require.True(t, ok)
	text := strings.Join(strings.Fields(block), " ")
	for role, list := range rules(t) {
		require.Contains(t, text, strings.Join(list, " "), "the rules of %s, as in %s", role, rulesFile)
	}
}

// A flow makes every call of a role, on a topic of its own.
type flow func(ctx context.Context, b *redisstream.Backend, topic string) error

var flows = map[string]flow{
	"publisher": func(ctx context.Context, b *redisstream.Backend, topic string) error {
		return errors.Join(b.Ping(ctx), proxyrig.Declare(ctx, b, topic), b.Publish(ctx, []*backend.Message{{Topic: topic}}), bury(ctx, b, topic))
	},
	"consumer": consume,
	"monitor": func(ctx context.Context, b *redisstream.Backend, topic string) error {
		if err := b.Ping(ctx); err != nil {
			return err
		}
		topics, err := b.Topics(ctx)
		groups, err2 := b.Groups(ctx, topic)
		ms, err3 := b.Read(ctx, topic, "", 10)
		stats, err4 := b.Stats(ctx, topic, workers)
		_, err5 := b.Paused(ctx, topic, workers)
		if err := errors.Join(err, err2, err3, err4, err5); err != nil {
			return err
		}
		if !slices.Contains(topics, topic) || len(groups) != 1 || len(ms) != 3 || stats.Depth != 3 || stats.Lag != 2 {
			return fmt.Errorf("wrong: %v %v %v %+v", topics, groups, ms, stats)
		}
		return nil
	},
	"redriver": func(ctx context.Context, b *redisstream.Backend, topic string) error {
		letters, err := deadletter.Open(b, topic+".dlq")
		if err != nil {
			return err
		}
		classes, err := letters.Classes(ctx, deadletter.Filter{})
		report, err2 := letters.Redrive(ctx, deadletter.Redrive{})
		if err := errors.Join(b.Ping(ctx), err, err2); err != nil {
			return err
		}
		if left, err := letters.Classes(ctx, deadletter.Filter{}); err != nil || len(classes) != 1 || report.Redriven != 1 || len(left) > 0 {
			return fmt.Errorf("wrong: %v %+v %v %w", classes, report, left, err)
		}
		return nil
	},
	"admin": func(ctx context.Context, b *redisstream.Backend, topic string) error {
		_, err := b.Topics(ctx)
		_, err2 := b.Groups(ctx, topic)
		return errors.Join(err, err2, b.Remove(ctx, topic, []string{"00000000000000-00000000000000000001"}), b.ResetGroup(ctx, topic, workers, backend.StartLatest),
			b.ResetGroup(ctx, topic, workers, backend.StartAfter("00000000000000-00000000000000000001")),
			b.DeleteGroup(ctx, topic, passing), b.DeleteGroup(ctx, topic, workers), b.DeleteTopic(ctx, topic))
	},
	"declarer": func(ctx context.Context, b *redisstream.Backend, topic string) error {
		_, err := b.Declare(ctx, topic+".new", backend.Declaration{Settings: backend.TopicSettings{Keep: time.Hour}})
		_, err2 := b.Declare(ctx, topic+".new", backend.Declaration{Replace: true})
		return errors.Join(err, err2)
	},
	"operator": func(ctx context.Context, b *redisstream.Backend, topic string) error {
		p := backend.Pause{By: "ada", Until: time.Now().Add(time.Hour)}
		err := b.Pause(ctx, topic, workers, p)
		paused, err2 := b.Paused(ctx, topic, workers)
		_, err3 := b.Settle(ctx, topic, workers, "00000000000000-00000000000000000000")
		if err := errors.Join(err, err2, err3, b.Resume(ctx, topic, workers)); err != nil || paused.By != p.By {
			return fmt.Errorf("wrong: %+v %w", paused, err)
		}
		return nil
	},
	"bounded": func(ctx context.Context, b *redisstream.Backend, topic string) error {
		return b.Publish(ctx, []*backend.Message{{Topic: topic}})
	},
	"ephemeral": func(ctx context.Context, b *redisstream.Backend, topic string) error {
		c := backend.Config{Topic: topic, Group: passing, Lease: time.Second, Ephemeral: true, Instance: "shop-0", Incarnation: "first"}
		s, err := b.Attach(ctx, c)
		if err != nil {
			return err
		}
		_, err = b.Maintain(ctx, topic, passing)
		return errors.Join(err, s.Close())
	},
}

// besides holds the role whose rules a role needs too.
var besides = map[string]string{"bounded": "publisher", "ephemeral": "consumer"}

// prepare makes the group that a role works on. One message is settled, and one is held.
func prepare(t *testing.T, owner *redisstream.Backend, role, topic string) {
	if role == "publisher" || role == "consumer" {
		return
	}
	s := attach(t, owner, backend.Config{Topic: topic, Group: workers, Lease: lease})
	ds := receive(t, s, 1)
	switch role {
	case "admin":
		attach(t, owner, backend.Config{Topic: topic, Group: passing, Lease: lease, Ephemeral: true, Instance: "shop-0", Incarnation: "first"})
	case "bounded":
		require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
		receive(t, s, 1)
		_, err := owner.Declare(t.Context(), topic, backend.Declaration{Settings: backend.TopicSettings{MaxMessages: 3}})
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
}

// dead returns a dead letter of an event of topic.
func dead(topic string) *backend.Message {
	return &backend.Message{Topic: topic + ".dlq", ID: "dead", Headers: backend.Headers{
		{Name: letter.Reason, Value: eventbus.ReasonExhausted},
		{Name: letter.Topic, Value: topic},
		{Name: letter.Group, Value: workers},
		{Name: letter.ID, Value: "x"},
	}}
}

func duplicate(m *backend.Message) error {
	if !m.Duplicate { // only this shows that a mark was not allowed
		return fmt.Errorf("%w: not a duplicate", backend.ErrDenied)
	}
	return nil
}

// consume attaches, receives, settles in each way, takes over, publishes to the
// dead-letter topic and maintains. It collects the errors, so that each verb is tried.
func consume(ctx context.Context, b *redisstream.Backend, topic string) error {
	c := backend.Config{Topic: topic, Group: workers, Lease: 50 * time.Millisecond}
	first, err := b.Attach(ctx, c)
	if err != nil {
		return err
	}
	c.Group, c.Start = "others", backend.StartLatest
	latest, err := b.Attach(ctx, c)
	if err != nil {
		return err
	}
	c.Group, c.Instance, c.Incarnation = workers, "shop-0", "first"
	if _, err = b.Attach(ctx, c); err != nil {
		return err
	}
	c.Incarnation = "second"
	second, err := b.Attach(ctx, c)
	if err != nil {
		return err
	}
	took := func(s backend.Source, n int) (ds []backend.Delivery, err error) {
		for ctx.Err() == nil && len(ds) < n && err == nil {
			var got []backend.Delivery
			got, err = s.Receive(ctx, n-len(ds), 0)
			ds = append(ds, got...)
		}
		return ds, errors.Join(err, ctx.Err())
	}
	held, err := took(first, 3)
	if err != nil {
		return err
	}
	taken, err := took(second, 3) // the messages whose lease has expired
	if err != nil {
		return err
	}
	v := second.(member)
	err = errors.Join(v.Extend(ctx, backend.Lend(taken)), v.Delay(ctx, []backend.Delayed{{Delivery: taken[0]}}), v.Ack(ctx, backend.Lend(taken[1:])))
	if err != nil {
		return err
	}
	again, err := took(second, 1)
	if err != nil {
		return err
	}
	_, err = b.Maintain(ctx, topic, workers)
	err = errors.Join(err, b.Ping(ctx), proxyrig.Declare(ctx, b, topic+".dlq"), bury(ctx, b, topic+".dlq"),
		v.Ack(ctx, backend.Lend(again)), first.Ack(ctx, backend.Lend(held)))
	if err != nil {
		return err
	}
	if err = errors.Join(second.Close(), first.Close(), latest.Close()); err != nil {
		return err
	}
	_, err = b.Maintain(ctx, topic, workers) // trims
	return err
}

// bury publishes twice, in the way the bus publishes a dead letter.
func bury(ctx context.Context, b *redisstream.Backend, topic string) error {
	first, second := backend.Message{Topic: topic, ID: "a", Once: true}, backend.Message{Topic: topic, ID: "a", Once: true}
	return errors.Join(b.Publish(ctx, []*backend.Message{&first}), b.Publish(ctx, []*backend.Message{&second}), duplicate(&second))
}

// X02: the rules of a role allow every call that it makes. Each rule is needed, except the
// optional ones.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	all := rules(t)
	owner := open(t, dial(t, server.Addr()), redisstream.Options{})
	run := func(t *testing.T, role string, list []string) error {
		topic := fmt.Sprintf("%s.%d", role, time.Now().UnixNano())
		server.User(t, role, "secret", list...)
		for range 3 {
			require.NoError(t, owner.Publish(t.Context(), []*backend.Message{{Topic: topic, ID: "x"}}))
		}
		require.NoError(t, owner.Publish(t.Context(), []*backend.Message{dead(topic)}))
		prepare(t, owner, role, topic)
		require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: role, Password: "secret"})
		defer client.Close()
		var o redisstream.Options
		if role == "consumer" {
			o.MaxMessages = 1000 // its dead-letter topic has a bound
		}
		b, err := redisstream.New(client, o)
		require.NoError(t, err)
		b.SetYouth(0)
		defer b.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := flows[role](ctx, b, topic)
		if done == nil { // Close cannot return this error
			done = left(ctx, server.Client(t), owner, role, topic)
		}
		return done
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(flows)), []string{
		"publisher", "consumer", "monitor", "redriver", "admin", "declarer", "operator", "bounded", "ephemeral",
	})
	for role := range flows { // each has an account and a topic of its own
		t.Run(role, func(t *testing.T) {
			base := all[besides[role]]
			require.NoError(t, run(t, role, slices.Concat(base, all[role])), "without what is optional")
			require.NoError(t, run(t, role, slices.Concat(base, all[role], all[role+" optional"])))
			for i, rule := range all[role] {
				if slices.Contains(base, rule) {
					continue
				}
				err := run(t, role, slices.Concat(base, all[role][:i], all[role][i+1:]))
				require.Error(t, err, "%s is not needed", rule)
				require.ErrorIs(t, err, backend.ErrDenied, "without %s", rule)
			}
		})
	}
}

// left returns an error if members that have left are still there, or keys of an ephemeral group.
func left(ctx context.Context, admin *redis.Client, b *redisstream.Backend, role, topic string) error {
	if role == "ephemeral" {
		for _, key := range admin.Keys(ctx, "*{"+topic+"}*").Val() {
			if strings.Contains(key, passing) {
				return fmt.Errorf("%w: %s is left", backend.ErrDenied, key)
			}
		}
		return nil
	}
	if role != "consumer" {
		return nil
	}
	s, err := b.Stats(ctx, topic, workers)
	if err == nil && s.Members > 0 {
		return fmt.Errorf("%w: %d members did not leave", backend.ErrDenied, s.Members)
	}
	return err
}

// A role is denied every call that is not its own.
func TestRolesAreDeniedTheRest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	all := rules(t)
	owner := open(t, dial(t, server.Addr()), redisstream.Options{})
	attach(t, owner, config())
	publish(t, owner, batch("a", 5))
	publish(t, owner, []*backend.Message{dead(topic)})
	as := func(role string) *redisstream.Backend {
		server.User(t, role, "secret", append(slices.Clone(all[role]), all[role+" optional"]...)...)
		return open(t, dialAs(t, server.Addr(), role, "secret"), redisstream.Options{})
	}
	consumer := as("consumer")
	_, err := consumer.Topics(t.Context())
	require.ErrorIs(t, err, backend.ErrDenied)
	require.ErrorIs(t, consumer.DeleteTopic(t.Context(), topic), backend.ErrDenied)
	require.ErrorIs(t, consumer.DeleteGroup(t.Context(), topic, workers), backend.ErrDenied)
	require.ErrorIs(t, consumer.ResetGroup(t.Context(), topic, workers, backend.StartEarliest), backend.ErrDenied)
	publisher := as("publisher")
	_, err = publisher.Attach(t.Context(), config())
	require.ErrorIs(t, err, backend.ErrDenied)
	_, err = publisher.Read(t.Context(), topic, "", 10)
	require.ErrorIs(t, err, backend.ErrDenied)
	monitor := as("monitor")
	require.ErrorIs(t, monitor.Publish(t.Context(), batch("b", 1)), backend.ErrDenied)
	require.ErrorIs(t, monitor.Publish(t.Context(), once(batch("b", 1))), backend.ErrDenied)
	require.ErrorIs(t, proxyrig.Declare(t.Context(), monitor, topic), backend.ErrDenied)
	_, err = monitor.Maintain(t.Context(), topic, workers)
	require.ErrorIs(t, err, backend.ErrDenied)
	letters, err := deadletter.Open(monitor, topic+".dlq")
	require.NoError(t, err)
	report, err := letters.Redrive(t.Context(), deadletter.Redrive{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, deadletter.Report{Redriven: 1}, report)
	_, err = letters.Redrive(t.Context(), deadletter.Redrive{})
	require.ErrorIs(t, err, backend.ErrDenied)
	_, err = letters.Discard(t.Context(), deadletter.Filter{})
	require.ErrorIs(t, err, backend.ErrDenied)
	redriver := as("redriver")
	require.ErrorIs(t, redriver.DeleteTopic(t.Context(), topic), backend.ErrDenied)
	_, err = redriver.Attach(t.Context(), config())
	require.ErrorIs(t, err, backend.ErrDenied)
	stats, err := monitor.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, int64(5), stats.Depth, "nothing has happened")
	require.Equal(t, int64(5), stats.Lag)

	server.User(t, "elsewhere", "secret", append([]string{"~shop:*"}, all["consumer"][1:]...)...)
	other := open(t, dialAs(t, server.Addr(), "elsewhere", "secret"), redisstream.Options{})
	_, err = other.Attach(t.Context(), config())
	require.ErrorIs(t, err, backend.ErrDenied, "keys of others")
	own := open(t, dialAs(t, server.Addr(), "elsewhere", "secret"), redisstream.Options{Namespace: "shop"})
	attach(t, own, config())
	publish(t, own, batch("c", 1))
}

func TestLeastPrivilegeInCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	all := rules(t)
	for _, node := range cluster.Nodes() {
		node.User(t, "consumer", "secret", append(slices.Clone(all["consumer"]), all["cluster"]...)...)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "consumer", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := open(t, client, redisstream.Options{})
	b.SetYouth(0)
	for i := range 3 {
		topic := fmt.Sprintf("topic-%d", i)
		for range 3 {
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic, ID: "x"}}))
		}
		require.NoError(t, consume(within(t, 20*time.Second), b, topic))
	}
}

// A modest backend has no administrator's verbs.
type modest struct {
	backend.Backend
	backend.Declarer
	backend.Maintainer
	backend.Reader
	backend.Statser
	backend.Pinger
	backend.Limited
	backend.Pauser
}

// The whole suite passes for a user with all roles except redriver and admin.
func TestConformanceLeastPrivilege(t *testing.T) {
	if os.Getenv("EVENTBUS_ACL_SUITE") == "" {
		t.Skip("set EVENTBUS_ACL_SUITE to run every law as a user of least privilege")
	}
	var r rig
	all := rules(t)
	var list []string
	for _, role := range []string{"consumer", "publisher", "monitor", "bounded", "ephemeral", "declarer", "operator"} {
		list = append(append(list, all[role]...), all[role+" optional"]...)
	}
	list = slices.DeleteFunc(list, func(rule string) bool { return rule == "+scan" })
	plain := r.faults()
	faults := plain
	faults.Lose = nil // the user may not
	conformance.Run(t, conformance.Suite{
		Name: "redis-acl",
		New: func(t *testing.T) backend.Backend {
			server := redistest.Start(t)
			server.User(t, "app", "secret", list...)
			proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
			client := dialAs(t, proxy.Addr(), "app", "secret")
			b := open(t, client, redisstream.Options{OnceWindow: onceWindow})
			b.SetYouth(0)
			m := &modest{b, b, b, b, b, b, b, b}
			r.Add(m, &link{servers: []*redistest.Server{server}, proxies: []*faultproxy.Proxy{proxy}, client: client})
			return m
		},
		Faults:   faults,
		Lease:    lease,
		Parallel: true,
	})
}
