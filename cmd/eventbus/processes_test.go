package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/presence"
)

// announced returns the processes that the command shows, as soon as they have n subscriptions.
func (b *bench) announced(n int, topics ...string) (all []presence.Process) {
	b.t.Helper()
	await(b.t, "the members", func() bool {
		all = nil
		require.NoError(b.t, json.Unmarshal([]byte(b.ok("", append([]string{"processes", "--json"}, topics...)...).stdout), &all))
		members := 0
		for _, p := range all {
			members += len(p.Subscriptions)
		}
		return members == n
	})
	return all
}

// The members of a group, and the settings in which they differ, are shown until they end.
func TestProcesses(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		r := b.run("", "processes")
		require.Zero(t, r.code)
		require.Empty(t, r.stdout)
		require.Equal(t, noProcesses+"\n", r.stderr)
		require.Equal(t, "[]\n", b.ok("", "processes", "--json").stdout)
		require.Equal(t, "[]\n", b.ok("", "processes", "--settings", "--json").stdout)

		one := b.start("sub", "orders", "--group", "billing", "--attempts", "3", "--announce", "1s")
		two := b.start("sub", "orders", "--group", "billing", "--attempts", "2", "--announce", "1s")
		three := b.start("sub", "payments", "--group", "audit", "--announce", "1s")
		all := b.announced(3)
		require.Len(t, all, 3)
		require.Len(t, b.announced(2, "orders"), 2)
		require.Empty(t, b.announced(0, "refunds"))
		require.NotContains(t, b.ok("", "topics").stdout, presence.Topic)
		require.Contains(t, b.ok("", "topics", "--all").stdout, presence.Topic)

		lines := b.ok("", "processes").lines()
		require.Equal(t, strings.Fields("PROCESS VERSION UP TOPIC GROUP STATE RUNNING HELD FAILING PARTITIONS"), strings.Fields(lines[0]))
		require.Len(t, lines, 4)
		require.Contains(t, lines[1], all[0].Name)

		settings := b.ok("", "processes", "orders", "--settings").stdout
		require.Regexp(t, `(?m)^orders +billing +Retry\.MaxAttempts +2 +eventbus@\S+/\d+#\w{4}$`, settings)
		require.Regexp(t, `(?m)^orders +billing +Retry\.MaxAttempts +3 +eventbus@\S+/\d+#\w{4}$`, settings)
		require.Regexp(t, `(?m)^orders +billing +Lease +30s +all$`, settings)
		require.NotContains(t, settings, "payments")

		require.Zero(t, one.end().code)
		require.Len(t, b.announced(2), 2)
		require.Zero(t, two.end().code)
		require.Zero(t, three.end().code)
		require.Empty(t, b.announced(0))
	})
}

func TestAnnounceRefuses(t *testing.T) {
	b := newBench(t)
	r := b.run("", "sub", "orders", "--group", "billing", "--announce", "1ms")
	require.Equal(t, 1, r.code)
	require.Equal(t, "eventbus: sub: --announce is 1ms, less than a second\n", r.stderr)
}

// Members that differ are a finding when none of them has just started: a deploy is none.
func TestDoctorFindsSettings(t *testing.T) {
	b := newBench(t)
	p := b.patient()
	_, s := p.finds(0)
	require.Contains(t, s.NotLookedAt, "the settings of members, because no process announces itself")
	one := b.start("sub", "orders", "--group", "billing", "--announce", "1s")
	two := b.start("sub", "orders", "--group", "billing", "--announce", "1s", "--concurrency", "2")
	b.announced(2)
	found, s := p.finds(0)
	require.Empty(t, found)
	require.NotContains(t, strings.Join(s.NotLookedAt, "\n"), "settings")
	time.Sleep(1100 * time.Millisecond)
	found, _ = p.finds(0, "--late", "1s")
	require.Equal(t, "note", found["settings-differ"].Severity, "only the sizes of the machines differ")
	three := b.start("sub", "orders", "--group", "billing", "--announce", "1s", "--attempts", "3")
	b.announced(3)
	time.Sleep(1100 * time.Millisecond)
	found, _ = p.finds(1, "--late", "1s")
	f := found["settings-differ"]
	require.Equal(t, "warning", f.Severity)
	require.Contains(t, f.Text, "Retry.MaxAttempts is ")
	require.Equal(t, "orders", f.Topic)
	require.Equal(t, "billing", f.Group)
	p.pastes(f)
	for _, r := range []*running{one, two, three} {
		require.Zero(t, r.end().code)
	}
}
