//go:build unix

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/groupstats"
)

// A command handles every published event exactly once in the order of its key, each
// seventh one at the second attempt. EVENTBUS_SCALE sets the number of events (350).
func TestPubSubExec(t *testing.T) {
	n := 350
	if scale := os.Getenv("EVENTBUS_SCALE"); scale != "" {
		var err error
		n, err = strconv.Atoi(scale)
		require.NoError(t, err)
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		pubSubExec(t, n, newBench(t).run)
	})
	onBrokers(t, func(t *testing.T, s brokerBench) { pubSubExec(t, n, s.run) })
}

func pubSubExec(t *testing.T, n int, run func(stdin string, args ...string) result) {
	var input strings.Builder
	retried := 0
	for i := range n {
		fmt.Fprintf(&input, `{"id":"e-%d","key":"k-%d","data":{"n":%d}}`+"\n", i, i%(n/5), i)
		if i%7 == 0 {
			retried++
		}
	}
	r := run(input.String(), "pub", "orders")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, fmt.Sprintf("stored %d events in orders\n", n), r.stdout)

	start := time.Now()
	r = run("", "sub", "orders", "--group", "billing", "--concurrency", "8", "--idle-exit", "1s", "--backoff", "10ms", "--exec",
		`n=${EVENTBUS_ID#e-}; if [ $EVENTBUS_ATTEMPT -eq 1 ] && [ $((n % 7)) -eq 0 ]; then exit 75; fi; echo "$EVENTBUS_KEY $n"`)
	took := time.Since(start) - time.Second
	t.Logf("%d events, %d runs in %v: %.0f runs a second", n, n+retried, took.Round(time.Millisecond), float64(n+retried)/took.Seconds())
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, fmt.Sprintf("handled %d, retried %d, dead-lettered 0, discarded 0\n", n, retried), r.account())

	seen, last := map[int]bool{}, map[string]int{}
	for _, l := range r.lines() {
		key, text, _ := strings.Cut(l, " ")
		number, err := strconv.Atoi(text)
		require.NoError(t, err, l)
		require.False(t, seen[number], "event %d was handled twice", number)
		seen[number] = true
		before, ok := last[key]
		require.True(t, !ok || before < number, "%d came after %d, both of %s", number, before, key)
		last[key] = number
	}
	require.Len(t, seen, n)

	r = run("", "groups", "orders", "--json")
	require.Zero(t, r.code, r.stderr)
	var rows []groupstats.GroupRow
	r.decode(t, &rows)
	require.Len(t, rows, 1)
	rows[0].Depth, rows[0].Members, rows[0].Oldest = 0, 0, time.Time{} // the backend decides when these vanish
	require.Equal(t, groupstats.GroupRow{Topic: "orders", Group: "billing"}, rows[0])
}

// The other commands, on a real broker.
func TestCommandsOnBrokers(t *testing.T) {
	onBrokers(t, func(t *testing.T, s brokerBench) {
		ok := func(stdin string, args ...string) result {
			t.Helper()
			r := s.run(stdin, args...)
			require.Zero(t, r.code, r.stderr)
			return r
		}
		require.Contains(t, ok("", "ping").stdout, "answered in ")
		require.Contains(t, ok(numbered(100), "pub", "orders", "--once").stdout, "stored 100 events in orders, 0 were already there")
		require.Contains(t, ok(numbered(101), "pub", "orders", "--once").stdout, "stored 1 event in orders, 100 were already there")
		all := ok("", "tail", "orders").events(t)
		require.Len(t, all, 101)
		require.Len(t, ok("", "tail", "orders", "--from", all[99].Position).lines(), 1)
		require.Len(t, ok("", "sub", "orders", "--group", "a", "--count", "10").lines(), 10)
		r := s.run("", "sub", "orders", "--group", "b", "--count", "4", "--exec", "[ $EVENTBUS_ID != e-2 ] || exit 65")
		require.Equal(t, 1, r.code, r.stderr)
		require.Contains(t, r.stderr, "handled 4, retried 0, dead-lettered 1, discarded 0\n")
		require.Contains(t, ok("", "topics").stdout, "orders.dlq")
		var rows []groupstats.GroupRow
		ok("", "groups", "--json").decode(t, &rows)
		require.Len(t, rows, 2)
		for i, lag := range []groupstats.Count{91, 96} {
			require.Equal(t, lag, rows[i].Lag+rows[i].InFlight+rows[i].Delayed)
			require.EqualValues(t, i, rows[i].DeadLetters, "a letter belongs to the group that failed")
		}
	})
}

// A closed pipe kills the commands that sub runs, as usual. An interrupt lets them finish.
func TestSubAsAProcess(t *testing.T) {
	onBrokers(t, func(t *testing.T, s brokerBench) {
		require.Zero(t, s.run(numbered(3), "pub", "orders").code)
		cmd := s.process("sub", "orders", "--group", "g", "--exec", "yes | head -n 1; sleep 0.3; echo end")
		var out, errs safeBuffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Start())
		await(t, "it runs", func() bool { return out.String() == "y\n" })
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait(), errs.String())
		require.Equal(t, "y\nend\n", out.String())
		require.Equal(t, "handled 1, retried 0, dead-lettered 0, discarded 0\n", errs.String())
	})
}
