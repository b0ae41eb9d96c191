package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/groupstats"
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
func (b *bench) owners() (rows []groupstats.OwnerRow) {
	b.t.Helper()
	b.ok("", "groups", "orders", "--owners", "--json").decode(b.t, &rows)
	return rows
}

// A topic with partitions is one line of each table, with sums. Its inner topics are shown with
// --all, and its members with --owners.
func TestTablesOfPartitions(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		one, endOne := b.divided(4)
		two, endTwo := b.divided(4)
		first, second := b.joins(one), b.joins(two)
		await(t, "each has its share", func() bool { return len(first.Partitions()) == 2 && len(second.Partitions()) == 2 })
		var rows []groupstats.OwnerRow
		await(t, "the heartbeats say so", func() bool {
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
		require.Equal(t, []groupstats.OwnerRow{{Topic: "orders", Group: "billing", Partitions: []int{0, 1, 2, 3}}}, b.owners())
		require.Regexp(t, `(?m)^orders +billing +- +free +4 +0-3$`, b.ok("", "groups", "--owners").stdout)

		bus, end := b.divided(4)
		b.publishes(bus, 9)
		end()
		groups := b.groups("orders")
		require.Len(t, groups, 1)
		require.Equal(t, groupstats.GroupRow{
			Topic: "orders", Group: "billing", Partitions: 4,
			Stats: groupstats.Stats{Depth: groups[0].Depth, Lag: 9, Oldest: groups[0].Oldest, Members: groups[0].Members},
		}, groups[0])
		require.GreaterOrEqual(t, groups[0].Depth, groupstats.Count(9))
		require.WithinDuration(t, time.Now(), groups[0].Oldest, time.Minute)
		require.Equal(t, groups, b.groups(), "all groups")
		require.Regexp(t, `^TOPIC .* PARTITIONS\norders +billing +\d+ +9 .* 4\n$`, b.ok("", "groups").stdout)

		shown, all := map[string]groupstats.TopicRow{}, map[string]groupstats.TopicRow{}
		for args, rows := range map[string]map[string]groupstats.TopicRow{"--json": shown, "--all": all} {
			var list []groupstats.TopicRow
			b.ok("", "topics", args, "--json").decode(t, &list)
			for _, r := range list {
				rows[r.Topic] = r
			}
		}
		require.Equal(t, groupstats.TopicRow{Topic: "orders", Partitions: 4, Groups: 1, Depth: groups[0].Depth}, shown["orders"])
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

// An operator gives a topic more partitions and fewer. All that would lose events or their order is
// refused before, and programs with the old number get both numbers.
func TestTopicsSetPartitions(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		set := func(n string, more ...string) result {
			return b.run("", append([]string{"topics", "set", "orders", "--partitions", n}, more...)...)
		}
		require.Contains(t, set("8").stderr, `there is no topic "orders"`)
		b.ok("", "pub", "orders", "--data", "outside")
		require.Contains(t, set("8").stderr, "orders has no partitions: the first program that states them stores their number")

		old, endOld := b.divided(4)
		b.publishes(old, 20)
		require.Regexp(t, `this would leave 20 events that orders keeps without an order with later ones of their key: confirm with --yes\n$`, set("8").stderr)
		s := b.joins(old)
		await(t, "it works", func() bool { return len(s.Partitions()) == 4 && s.Counts().Acknowledged == 20 })
		require.Regexp(t, `orders has members: stop "shop@.*" of billing\n$`, set("8").stderr)
		require.NoError(t, s.Drain(t.Context()))
		b.publishes(old, 20)
		require.Contains(t, set("8").stderr, "billing has not settled 20 events of orders")
		s = b.joins(old)
		await(t, "it works", func() bool { return s.Counts().Acknowledged == 20 })
		require.NoError(t, s.Drain(t.Context()))

		require.Equal(t, "eventbus: topics set: give --partitions without --keep: it leaves the other settings as they are\n", set("8", "--keep", "1h").stderr)
		require.Contains(t, set("1025").stderr, "--partitions is 1025, want 1 to 1024")
		r := set("8")
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, "orders has 8 partitions now, in place of 4: 1 group had settled all events\n", r.stdout)
		err := old.Publish(t.Context(), "orders", &eventbus.Event{Key: "key-1"})
		number, ok := errors.AsType[*eventbus.PartitionsError](err)
		require.True(t, ok, err)
		require.Equal(t, []int{8, 4}, []int{number.Stored, number.Stated})
		endOld()
		require.Equal(t, "orders has 8 partitions already\n", set("8").stdout)

		bus, end := b.divided(8)
		b.publishes(bus, 20)
		require.Equal(t, groupstats.Count(20), b.groups("orders")[0].Lag, "the group has the new partitions too")
		s = b.joins(bus)
		await(t, "it works", func() bool { return len(s.Partitions()) == 8 && s.Counts().Acknowledged == 20 })
		end()

		var done repartitioned
		set("2", "--json").decode(t, &done)
		require.Equal(t, repartitioned{Topic: "orders", Done: "divided", Before: 8, Partitions: 2, Groups: 1, Deleted: 6}, done)
		topics := b.ok("", "topics", "--all").stdout
		require.Contains(t, topics, "orders.partition-1 ")
		require.NotContains(t, topics, "orders.partition-2 ")
		bus, end = b.divided(2)
		b.publishes(bus, 20)
		s = b.joins(bus)
		await(t, "it works", func() bool { return len(s.Partitions()) == 2 && s.Counts().Acknowledged == 20 })
		end()
	})
}
