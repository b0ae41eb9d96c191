package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

func TestTopicsChange(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.ok("", "groups", "create", "orders", "billing")
		b.ok("", "pub", "orders", "--data", "1")
		require.Equal(t, "eventbus: topics delete: this would delete 1 event of orders and 1 group: confirm with --yes\n", b.run("", "topics", "delete", "orders").stderr)
		require.Contains(t, b.run("", "topics", "delete", "order", "--yes").stderr, `there is no topic "order"; did you mean orders?`)
		require.Equal(t, "orders is deleted, with 1 event that it kept and 1 group\n", b.ok("", "topics", "delete", "orders", "--yes").stdout)
		require.Empty(t, b.ok("", "topics").stdout)
	})
}

// A group that DeclareGroup has made keeps the events that come before its first member.
func TestDeclare(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		bus, err := eventbus.New(b.b, eventbus.Options{})
		require.NoError(t, err)
		require.NoError(t, backend.DeclareGroup(t.Context(), b.b, "orders", "billing", eventbus.StartLatest))
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		got := make(chan string, 1)
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Start: eventbus.StartLatest}, func(_ context.Context, d *eventbus.Delivery) error {
			got <- d.ID
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "1", <-got)
		require.Contains(t, b.run("", "groups", "create", "orders", "a group").stderr, "create: group ")
		require.Equal(t, 1, b.run("", "groups", "create", "orders", "g", "--start", "yesterday").code)
	})
}

// A topic keeps events by its settings. A group begins again at a time, and tail reads from one.
func TestKeepAndReplay(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		needs(t, b, backend.LimitsOf(b.b).Settings.Keep)
		require.Equal(t, "orders exists, keeps events for 1h0m0s\n", b.ok("", "topics", "declare", "orders", "--keep", "1h").stdout)
		r := b.run("", "topics", "declare", "orders", "--keep", "2h")
		require.Equal(t, 1, r.code)
		require.Equal(t, "orders exists, keeps events for 1h0m0s\n", r.stdout)
		require.Contains(t, r.stderr, "change them with topics set")
		require.Equal(t, "orders exists, keeps events for 2h0m0s\n", b.ok("", "topics", "set", "orders", "--keep", "2h").stdout)
		require.Contains(t, b.run("", "topics", "set", "order", "--keep", "2h").stderr, "did you mean orders?")

		b.ok("", "pub", "orders", "--data", "1")
		b.ok("", "sub", "orders", "--group", "billing", "--count", "1", "--exec", "true")
		b.ok("", "pub", "orders", "--data", "2")
		require.Regexp(t, "with the oldest event kept, at position .*: it gets 2 events now\n$", b.ok("", "groups", "reset", "orders", "billing", "--to", "1h ago", "--yes").stdout)
		require.Equal(t, 2, strings.Count(b.ok("", "tail", "orders", "--since", "1h").stdout, "\n"))
		require.Equal(t, 2, strings.Count(b.ok("", "tail", "orders", "--from", "1d ago").stdout, "\n"))
		require.Contains(t, b.run("", "tail", "orders", "--since", "yesterday").stderr, "--since")
		require.Contains(t, b.run("", "groups", "reset", "orders", "billing", "--to", "latst", "--yes").stderr, "did you mean latest?")
	})
}

func TestTopicsAndGroups(t *testing.T) {
	b := newBench(t)
	require.Empty(t, b.ok("", "topics").stdout)
	require.Empty(t, b.ok("", "groups").stdout)
	require.Equal(t, "[]\n", b.ok("", "groups", "--json").stdout)
	for _, group := range []string{"audit", "billing"} { // an event settled by all groups is forgotten
		b.ok("", "sub", "orders", "--group", group, "--idle-exit", "1ms")
	}
	b.ok(numbered(5), "pub", "orders")
	b.ok("", "sub", "orders", "--group", "audit", "--count", "2")
	b.failed(1, "sub", "orders", "--group", "billing", "--count", "3", "--exec", `[ $EVENTBUS_ID != e-1 ] || exit 65`)
	b.ok(numbered(1), "pub", "logs")

	require.Equal(t, ""+
		"TOPIC       GROUPS  DEPTH\n"+
		"logs        0       1\n"+
		"orders      2       3\n"+
		"orders.dlq  0       1\n", b.ok("", "topics").stdout)
	require.JSONEq(t, `[{"topic":"logs","groups":0,"depth":1},{"topic":"orders","groups":2,"depth":3},
		{"topic":"orders.dlq","groups":0,"depth":1}]`, b.ok("", "topics", "--json").stdout)

	require.Equal(t, ""+
		"TOPIC   GROUP    DEPTH  LAG  IN FLIGHT  DELAYED  OLDEST  DEAD  MEMBERS\n"+
		"orders  audit    3      3    0          0        0s      0     0\n"+
		"orders  billing  3      1    0          0        0s      1     0\n",
		strings.ReplaceAll(b.ok("", "groups").stdout, "1s", "0s"))
	rows := b.groups("logs", "orders")
	require.Len(t, rows, 2)
	require.WithinDuration(t, time.Now(), rows[0].Oldest, time.Minute)

	r := b.run("", "groups", "nowhere")
	require.Equal(t, 1, r.code)
	require.Equal(t, "eventbus: groups: there is no topic \"nowhere\"\n", r.stderr)
}
