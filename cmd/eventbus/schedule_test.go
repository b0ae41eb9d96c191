package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
)

func TestSchedule(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		require.Equal(t, "scheduled 1 event of orders for 2099-01-01T00:00:00Z\n", b.ok("", "pub", "orders", "--data", "x", "--id", "far", "--at", "2099-01-01T00:00:00Z").stdout)
		b.ok("", "pub", "orders", "--data", "x", "--id", "hour", "--key", "k", "--type", "t", "--in", "1h")
		rows := b.ok("", "schedule", "ls", "orders").lines()
		require.Len(t, rows, 3)
		require.Equal(t, "AT                    ID    TYPE  KEY  EVERY", rows[0])
		require.Contains(t, rows[1], "  hour  t     k")
		require.Contains(t, rows[2], "2099-01-01T00:00:00Z  far")
		require.Contains(t, b.ok("", "schedule", "ls", "orders", "--json").stdout, `"id": "far"`)

		r := b.run("", "schedule", "cancel", "orders", "hour", "none")
		require.Equal(t, 1, r.code)
		require.Equal(t, "hour: cancelled\nnone: not cancelled: it is unknown, published or about to be\n", r.stdout)
		require.Equal(t, "eventbus: schedule cancel: 1 id of 2: not cancelled: it is unknown, published or about to be\n", r.stderr)
		require.Len(t, b.ok("", "schedule", "ls", "orders").lines(), 2)
	})
}

func TestScheduleOfEntries(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		bus, err := eventbus.New(b.b, eventbus.Options{})
		require.NoError(t, err)
		require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "nightly", Topic: "orders", Cron: "0 3 * * *", Zone: "Europe/Berlin"}))
		require.Contains(t, b.ok("", "schedule", "ls", "orders").stdout, "0 3 * * * Europe/Berlin")
		b.ok("", "schedule", "pause", "orders", "nightly")
		require.Contains(t, b.ok("", "schedule", "ls", "orders").stdout, "paused  nightly")
		b.ok("", "schedule", "resume", "orders", "nightly")
		require.NotContains(t, b.ok("", "schedule", "ls", "orders").stdout, "paused")
		require.Equal(t, "nightly: ended\n", b.ok("", "schedule", "rm", "orders", "nightly").stdout)
		require.Empty(t, b.ok("", "schedule", "ls", "orders").stdout)
		r := b.run("", "schedule", "pause", "orders", "nightly")
		require.Contains(t, r.stderr, `there is no recurring entry "nightly"`)
	})
}

// schedule run publishes events that are due, without a subscription.
func TestScheduleRun(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok("", "pub", "orders", "--data", "x", "--id", "i", "--in", "1s")
		require.Empty(t, b.run("", "tail", "orders").stdout)
		r := b.start("schedule", "run", "orders")
		await(t, "the event is published", func() bool {
			return strings.Contains(b.run("", "tail", "orders").stdout, `"id":"i"`)
		})
		require.Zero(t, r.end().code)
	})
}

func TestPubRefusesTimes(t *testing.T) {
	b := newBench(t)
	for want, args := range map[string][]string{
		"give --at or --in, not both":     {"--at", "2099-01-01T00:00:00Z", "--in", "1h"},
		"--in is negative":                {"--in", "-1h"},
		`--at is "tomorrow", want a time`: {"--at", "tomorrow"},
	} {
		r := b.run("", append([]string{"pub", "orders", "--data", "x"}, args...)...)
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stderr, want)
	}
}
