package main

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// Groups are made before their first member, begin again, and are deleted. A change that loses
// events needs --yes, and each says how many events it concerns.
func TestGroupsChange(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		require.Equal(t, "orders/billing exists\n", b.ok("", "groups", "create", "orders", "billing").stdout)
		b.ok("", "pub", "orders", "--data", "1")
		b.ok("", "pub", "orders", "--data", "2")
		b.ok("", "groups", "create", "orders", "late", "--start", "latest")
		b.ok("", "groups", "create", "orders", "billing", "--start", "latest") // it exists
		r := b.run("", "groups", "reset", "orders", "billing", "--to", "latest")
		require.Equal(t, 1, r.code)
		require.Equal(t, "eventbus: groups reset: this would skip some of 2 events that billing has not settled: give --yes\n", r.stderr)
		require.Equal(t, "orders/billing begins again: it gets 2 events now\n", b.ok("", "groups", "reset", "orders", "billing", "--to", "earliest").stdout)
		require.Equal(t, "orders/late begins again: it gets 2 events now\n", b.ok("", "groups", "reset", "orders", "late", "--to", "earliest").stdout)
		require.Equal(t, "orders/late begins again: it gets 0 events now\n", b.ok("", "groups", "reset", "orders", "late", "--to", "latest", "--yes").stdout)
		require.Equal(t, "orders/late is deleted, with 0 events that it had not settled\n", b.ok("", "groups", "delete", "orders", "late").stdout)

		require.Equal(t, "eventbus: groups delete: this would forget 2 events that billing has not settled: give --yes\n", b.run("", "groups", "delete", "orders", "billing").stderr)
		require.Equal(t, "eventbus: groups delete: orders has no group \"biling\"; did you mean billing?\n", b.run("", "groups", "delete", "orders", "biling", "--yes").stderr)
		var done outcome
		require.NoError(t, json.Unmarshal([]byte(b.ok("", "groups", "delete", "orders", "billing", "--yes", "--json").stdout), &done))
		require.Equal(t, outcome{"orders", "billing", "deleted", 2}, done)
		require.Equal(t, 1, b.run("", "groups", "delete", "orders", "billing", "--yes").code)
		require.Equal(t, 1, b.run("", "groups", "reset", "orders", "billing", "--to", "earliest").code)
	})
}

func TestTopicsChange(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.ok("", "groups", "create", "orders", "billing")
		b.ok("", "pub", "orders", "--data", "1")
		require.Equal(t, "eventbus: topics delete: this would delete 1 event of orders and 1 group: give --yes\n", b.run("", "topics", "delete", "orders").stderr)
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
