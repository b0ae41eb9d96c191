package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
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
		require.Equal(t, "eventbus: groups reset: this would skip some of 2 events that billing has not settled: confirm with --yes\n", r.stderr)
		for _, group := range []string{"billing", "late"} {
			require.Regexp(t, "^orders/"+group+" starts over with the oldest event kept, at position [^ ]+: it gets 2 events now\n$", b.ok("", "groups", "reset", "orders", group, "--to", "earliest").stdout)
		}
		require.Equal(t, "orders/late starts over: it gets 0 events now\n", b.ok("", "groups", "reset", "orders", "late", "--to", "latest", "--yes").stdout)
		require.Equal(t, "orders/late is deleted, with 0 events that it had not settled\n", b.ok("", "groups", "delete", "orders", "late").stdout)

		require.Equal(t, "eventbus: groups delete: this would forget 2 events that billing has not settled: confirm with --yes\n", b.run("", "groups", "delete", "orders", "billing").stderr)
		require.Equal(t, "eventbus: groups delete: orders has no group \"biling\"; did you mean billing?\n", b.run("", "groups", "delete", "orders", "biling", "--yes").stderr)
		var done outcome
		require.NoError(t, json.Unmarshal([]byte(b.ok("", "groups", "delete", "orders", "billing", "--yes", "--json").stdout), &done))
		require.Equal(t, outcome{"orders", "billing", "deleted", 2, ""}, done)
		require.Equal(t, 1, b.run("", "groups", "delete", "orders", "billing", "--yes").code)
		require.Equal(t, 1, b.run("", "groups", "reset", "orders", "billing", "--to", "earliest").code)
	})
}

// A group is paused and resumed. The table of groups says who paused it and why.
func TestPause(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		_, err := backend.PauserOf(b.b)
		needs(t, b, err == nil)
		b.ok("", "groups", "create", "orders", "billing")
		b.ok("", "pub", "orders", "--data", "1")
		require.NotContains(t, b.ok("", "groups").stdout, "PAUSED")
		require.Equal(t, "orders/billing is paused until eventbus groups resume, with 1 event that it has not settled\n", b.ok("", "groups", "pause", "orders", "billing", "--by", "ann", "--why", "the bank is closed").stdout)
		require.Regexp(t, `PAUSED\n.* since [^ ]+ by ann: the bank is closed\n$`, b.ok("", "groups").stdout)
		require.Regexp(t, "is paused until 2", b.ok("", "groups", "pause", "orders", "billing", "--until", "2h").stdout)
		require.Equal(t, "orders/billing resumes, with 1 event that it has not settled\n", b.ok("", "groups", "resume", "orders", "billing").stdout)
		require.Equal(t, 1, b.run("", "groups", "pause", "orders", "biling").code)
		require.Contains(t, b.run("", "groups", "pause", "orders", "billing", "--until", "1h ago").stderr, "has passed")
	})
}

func needs(t *testing.T, b *bench, claimed bool) {
	t.Helper()
	if !claimed {
		t.Skipf("%T cannot do this", b.b)
	}
}

// An event that a group has received is made a dead letter, and the group has it no more. Others are refused.
func TestGroupsBury(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.ok("", "pub", "orders", "--data", "1", "--id", "a")
		b.ok("", "pub", "orders", "--data", "2", "--id", "b")
		src, err := b.b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
		require.NoError(t, err)
		defer src.Close()
		ds, err := src.Receive(t.Context(), 1, 0)
		require.NoError(t, err)
		require.Len(t, ds, 1)
		at := strings.Clone(ds[0].Position)
		require.Equal(t, "event a of orders/billing is a dead letter in orders.dlq\n", b.ok("", "groups", "bury", "orders", "billing", "--at", at, "--by", "ann", "--why", "INC-7").stdout)
		require.Contains(t, b.ok("", "dlq", "show", "orders.dlq").stdout, "taken away by ann: INC-7")
		s, err := backend.StatsOf(t.Context(), b.b, "orders", "billing")
		require.NoError(t, err)
		require.EqualValues(t, 1, s.Lag+s.Unacked)

		ms, err := backend.Read(t.Context(), b.b, "orders", backend.StartAfter(at), 1)
		require.NoError(t, err)
		require.Contains(t, b.run("", "groups", "bury", "orders", "billing", "--at", ms[0].Position).stderr, "has not received the message")
		require.NotZero(t, b.run("", "groups", "bury", "orders", "biling", "--at", at).code)
		require.NotZero(t, b.run("", "groups", "bury", "orders", "billing").code)
		require.Contains(t, b.run("", "groups", "bury", "orders.dlq", "billing", "--at", at).stderr, "--to")
	})
}

func TestAge(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1s", -time.Second: "0s", 90 * time.Minute: "1h30m0s", 100 * time.Hour: "4d4h",
	} {
		require.Equal(t, want, age(now.Add(-d), now))
	}
	require.Equal(t, "-", age(time.Time{}, now))
	var out strings.Builder
	require.NoError(t, writeGroups(&out, []groupstats.GroupRow{{Topic: "a", Group: "g", Stats: groupstats.Stats{Lag: backend.Unknown}}}, now))
	require.Contains(t, out.String(), "unknown")
}
