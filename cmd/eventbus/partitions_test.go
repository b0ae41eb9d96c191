package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/survey"
	"github.com/seed41896749/eventbus/internal/partition"
)

// divided returns a bus on the bench whose topic orders has n partitions, and a function that ends
// it.
func (b *bench) divided(n int) (bus *eventbus.Bus, end func()) {
	b.t.Helper()
	bus, err := eventbus.New(sharedBackend{b.b}, eventbus.Options{Service: "shop", Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: n}}})
	require.NoError(b.t, err)
	return bus, func() { require.NoError(b.t, bus.Shutdown(context.WithoutCancel(b.t.Context()))) }
}

// publishes publishes n events, each with a key of its own.
func (b *bench) publishes(bus *eventbus.Bus, n int) {
	b.t.Helper()
	for i := range n {
		require.NoError(b.t, bus.Publish(b.t.Context(), "orders", &eventbus.Event{ID: fmt.Sprint(i), Key: fmt.Sprint("key-", i)}))
	}
}

// joins adds a member of the group billing, whose handler succeeds.
func (b *bench) joins(bus *eventbus.Bus) *eventbus.Subscription {
	b.t.Helper()
	s, err := bus.Subscribe(b.t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Lease: 6 * time.Second}, func(context.Context, *eventbus.Delivery) error { return nil })
	require.NoError(b.t, err)
	return s
}

// owners runs the command groups --owners.
func (b *bench) owners() (rows []survey.Owner) {
	b.t.Helper()
	b.ok("", "groups", "orders", "--owners", "--json").decode(b.t, &rows)
	return rows
}

// A topic with partitions is one line of each table, with sums. Its inner topics are shown with
// --all, and its members with --owners.
func TestTablesOfPartitions(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		one, endOne := b.divided(4)
		two, endTwo := b.divided(4)
		first, second := b.joins(one), b.joins(two)
		await(t, "each has its share", func() bool { return len(first.Partitions()) == 2 && len(second.Partitions()) == 2 })
		var rows []survey.Owner
		await(t, "the notes say so", func() bool {
			rows = b.owners()
			return len(rows) == 2 && len(rows[0].Partitions) == 2 && len(rows[1].Partitions) == 2
		})
		for _, r := range rows {
			require.Regexp(t, `^shop@.*/\d+$`, r.Member)
			require.True(t, r.Lives)
		}
		require.ElementsMatch(t, []int{0, 1, 2, 3}, append(rows[0].Partitions, rows[1].Partitions...))
		require.Regexp(t, `(?m)^orders +billing +shop@.* lives +2 +[0-3]`, b.ok("", "groups", "--owners").stdout)
		endOne()
		endTwo()
		require.Equal(t, []survey.Owner{{Topic: "orders", Group: "billing", Partitions: []int{0, 1, 2, 3}}}, b.owners())
		require.Regexp(t, `(?m)^orders +billing +- +free +4 +0-3$`, b.ok("", "groups", "--owners").stdout)

		bus, end := b.divided(4)
		b.publishes(bus, 9)
		end()
		groups := b.groups("orders")
		require.Len(t, groups, 1)
		require.Equal(t, survey.Group{
			Topic: "orders", Group: "billing", Partitions: 4, Depth: groups[0].Depth, Lag: 9, Oldest: groups[0].Oldest, Members: groups[0].Members,
		}, groups[0])
		require.GreaterOrEqual(t, groups[0].Depth, survey.Count(9))
		require.WithinDuration(t, time.Now(), groups[0].Oldest, time.Minute)
		require.Equal(t, groups, b.groups(), "all groups")
		require.Regexp(t, `^TOPIC .* PARTITIONS\norders +billing +\d+ +9 .* 4\n$`, b.ok("", "groups").stdout)

		shown, all := map[string]survey.Topic{}, map[string]survey.Topic{}
		for args, rows := range map[string]map[string]survey.Topic{"--json": shown, "--all": all} {
			var list []survey.Topic
			b.ok("", "topics", args, "--json").decode(t, &list)
			for _, r := range list {
				rows[r.Topic] = r
			}
		}
		require.Equal(t, survey.Topic{Topic: "orders", Partitions: 4, Groups: 1, Depth: groups[0].Depth}, shown["orders"])
		require.Equal(t, shown["orders"], all["orders"])
		for _, name := range append(eventbus.PartitionTopics("orders", 4), partition.NumberTopic("orders"), partition.OwnersTopic("orders")) {
			require.NotContains(t, shown, name)
			require.Contains(t, all, name)
		}
		require.Regexp(t, `(?m)^orders\.partition-0 +billing .* -$`, b.ok("", "groups", "--all").stdout)
		require.Len(t, b.groups("orders.partition-0"), 1)

		require.Contains(t, b.run("", "groups", "ordes").stderr, "did you mean orders?")
		require.Contains(t, b.run("", "topics", "delete", "orders", "--yes").stderr, "orders has partitions, each of which is a topic of its own, such as orders.partition-0")
	})
}

// A program that states no partitions publishes to the topic itself, which is then a row of its own.
func TestTablesShowEventsOutsidePartitions(t *testing.T) {
	b := newBench(t)
	bus, end := b.divided(2)
	b.publishes(bus, 3)
	end()
	b.ok("", "pub", "orders", "--data", "1")
	require.Equal(t, "TOPIC   GROUPS  DEPTH  PARTITIONS\norders  0       3      2\norders  0       1      -\n", b.ok("", "topics").stdout)
}
