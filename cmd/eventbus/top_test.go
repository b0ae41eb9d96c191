package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// top shows the numbers that the console shows.
func TestTop(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.ok("", "groups", "create", "orders", "audit")
		b.ok(numbered(3), "pub", "orders")
		b.ok("", "groups", "pause", "orders", "audit")
		b.failed(1, "sub", "orders", "--group", "billing", "--count", "2", "--exec", `[ "$EVENTBUS_ID" != e-1 ] || exit 65`)

		r := b.ok("", "top", "--count", "1", "--json")
		var got round
		r.decode(t, &got)
		require.WithinDuration(t, time.Now(), got.Taken, time.Minute)
		require.Len(t, got.Groups, 2)
		for _, g := range got.Groups {
			switch {
			case g.Group == "audit":
				require.Equal(t, []any{"paused", groupstats.Count(3), groupstats.Count(0)}, []any{g.Status, g.Lag, g.DeadLetters})
			case g.Members.Known():
				require.Equal(t, []any{"no members", groupstats.Count(0), groupstats.Count(1)}, []any{g.Status, g.Lag, g.DeadLetters})
				require.Equal(t, g, got.Groups[0], "a group in trouble is first")
			default: // a backend that does not know the members
				require.Equal(t, []any{"ok", groupstats.Count(0), groupstats.Count(1)}, []any{g.Status, g.Lag, g.DeadLetters})
			}
		}
		v, _ := b.serve()
		shown := cells(v.page(""), "Status") // with the end of a pause
		require.Len(t, shown, 2)
		for i, g := range got.Groups {
			require.True(t, strings.HasPrefix(shown[i], g.Status), "%s, in the console %s", g.Status, shown[i])
		}
	})
}

func TestTopAsText(t *testing.T) {
	b := newBench(t)
	require.Regexp(t, `^\d\d:\d\d:\d\d  groups: none\n$`, b.ok("", "top", "--count", "1").stdout)
	for _, group := range []string{"audit", "billing"} {
		b.ok("", "groups", "create", "orders", group)
	}
	b.ok(numbered(3), "pub", "orders")
	require.Regexp(t, `^\d\d:\d\d:\d\d  groups: 2 no members
TOPIC   GROUP    STATUS      LAG  IN FLIGHT  DELAYED  OLDEST  DEAD  MEMBERS
orders  audit    no members  3    0          0        \ds      0     0
orders  billing  no members  3    0          0        \ds      0     0
$`, b.ok("", "top", "orders", "--count", "1").stdout)
	require.Contains(t, b.ok("", "top", "--count", "1", "--rows", "1").stdout, "\n1 further groups\n")

	r := b.start("top", "--interval", "100ms", "--json")
	await(t, "three rounds", func() bool { return strings.Count(r.out.String(), "\n") >= 3 })
	ended := r.end()
	require.Zero(t, ended.code, ended.stderr)
	for _, line := range ended.lines() {
		var got round
		require.NoError(t, json.Unmarshal([]byte(line), &got))
		require.Len(t, got.Groups, 2)
	}
}

func TestTopRefusesWrongFlags(t *testing.T) {
	b := newBench(t)
	b.ok(numbered(1), "pub", "orders")
	for want, args := range map[string][]string{
		`top: there is no topic "order"; did you mean orders?`: {"order"},
		"top: --interval is less than 100ms":                   {"--interval", "1ms"},
		"top: --count and --rows must not be negative":         {"--rows", "-1"},
	} {
		r := b.run("", append([]string{"top"}, args...)...)
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stderr, want)
	}
}

// The broker goes away while top runs.
func TestTopSummary(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 3, 5, 0, time.UTC)
	n := map[groupstats.Status]int{groupstats.OK: 7, groupstats.Stuck: 1}
	away := fmt.Errorf("dial:\n%w", backend.ErrUnavailable)
	for want, s := range map[string]*groupstats.Snapshot{
		"12:03:05  groups: 1 stuck, 7 ok":                                         {Taken: now},
		"12:03:05  groups: 1 stuck, 7 ok  (numbers of 8s ago: dial: unavailable)": {Taken: now.Add(-8 * time.Second), Err: away},
		"12:03:05  no numbers yet: dial: unavailable":                             {Err: away},
	} {
		require.Equal(t, want, headline(s, n, now))
	}
	b := newBench(t)
	b.b = silent{Backend: b.mem, err: errors.Join(backend.ErrUnavailable, http.ErrServerClosed)}
	require.Contains(t, b.run("", "top", "--count", "1").stderr, "top: unavailable")
}
