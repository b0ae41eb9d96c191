//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

func TestSubPrintsEvents(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(numbered(100), "pub", "orders")
		r := b.ok("", "sub", "orders", "--group", "audit", "--idle-exit", "50ms")
		require.Equal(t, "handled 100, retried 0, dead-lettered 0, discarded 0\n", r.stderr)
		for i, e := range r.events(t) {
			require.Equal(t, event{
				ID: fmt.Sprintf("e-%d", i), Type: "t", Key: fmt.Sprintf("k-%d", i%7), Topic: "orders", Group: "audit",
				Attempt: 1, Position: e.Position, Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)),
			}, e)
		}
		r = b.ok("", "sub", "orders", "--group", "audit", "--idle-exit", "50ms", "--json")
		require.Empty(t, r.stdout, "all is settled")
		require.JSONEq(t, `{"handled":0,"retried":0,"dead_lettered":0,"discarded":0,"unconfirmed":0,"leases_lost":0,"abandoned":0,"killed":0,"late":0,"exit":0,"failing":0}`, r.stderr)
	})
}

// Exactly --count events succeed, whatever the concurrency; all others stay.
func TestSubCounts(t *testing.T) {
	for _, ack := range []string{"on-success", "on-receive"} {
		t.Run(ack, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *bench) {
				b.ok(numbered(100), "pub", "orders")
				seen := map[string]bool{}
				for range 4 {
					r := b.ok("", "sub", "orders", "--group", "g", "--count", "25", "--concurrency", "8", "--ack", ack)
					require.Len(t, r.lines(), 25)
					for _, e := range r.events(t) {
						seen[e.ID] = true
					}
				}
				require.Len(t, seen, 100)
				b.settled("orders")
			})
		})
	}
}

func TestSubCountsWhatSucceeds(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(numbered(20), "pub", "orders")
		r := b.ok("", "sub", "orders", "--group", "g", "--count", "20", "--concurrency", "4", "--backoff", "5ms",
			"--exec", `[ $EVENTBUS_ATTEMPT -gt 1 ] && echo $EVENTBUS_ID`)
		require.Len(t, r.lines(), 20)
		require.Equal(t, "handled 20, retried 20, dead-lettered 0, discarded 0\n", r.account())
		b.settled("orders")
	})
}

func TestSubExitCodes(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(numbered(6), "pub", "orders")
		r := b.failed(2, "sub", "orders", "--group", "g", "--idle-exit", "100ms", "--backoff", "5ms", "--attempts", "3", "--exec", `
			case $EVENTBUS_ID in
			e-1) echo bad data >&2; exit 65;;
			e-2) [ $EVENTBUS_ATTEMPT -ge 3 ] || exit 75;;
			e-3) echo always >&2; exit 1;;
			esac
			cat`)
		var ids []string
		for _, e := range r.events(t) {
			ids = append(ids, e.ID)
		}
		slices.Sort(ids)
		require.Equal(t, []string{"e-0", "e-2", "e-4", "e-5"}, ids)
		require.Contains(t, r.stderr, "\nhandled 4, retried 4, dead-lettered 2, discarded 0\n")
		require.Contains(t, r.stderr, "bad data\n", "is passed on")

		dead := b.read("orders.dlq")
		require.Len(t, dead, 2)
		require.Equal(t, "exit status 65: bad data", dead[0].Headers.Get("eventbus-dead-error"))
		require.Equal(t, "exit status 1: always", dead[1].Headers.Get("eventbus-dead-error"))
		require.Equal(t, groupstats.Count(2), b.groups("orders")[0].DeadLetters)

		// Dead letters can be consumed, and discarded when they fail.
		r = b.ok("", "sub", "orders.dlq", "--group", "ops", "--idle-exit", "50ms", "--dead-letter", "discard")
		require.Len(t, r.lines(), 2)
		require.Contains(t, b.run("", "sub", "orders.dlq", "--group", "ops").stderr, "eventbus: sub: --dead-letter is required, because")
	})
}

func TestSubDiscards(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(numbered(3), "pub", "orders")
		r := b.failed(3, "sub", "orders", "--group", "g", "--idle-exit", "50ms", "--exec", "exit 65", "--dead-letter", "discard")
		require.Contains(t, r.stderr, "handled 0, retried 0, dead-lettered 0, discarded 3\n")
		b.ok(numbered(3), "pub", "orders")
		r = b.failed(2, "sub", "orders", "--group", "g", "--idle-exit", "50ms", "--exec", "[ $EVENTBUS_ID = e-1 ]", "--ack", "on-receive")
		require.Contains(t, r.stderr, "handled 1, retried 0, dead-lettered 0, discarded 2\n")
	})
}

// A delayed retry is not idle.
func TestSubIsNotIdleWhileARetryWaits(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(numbered(1), "pub", "orders")
		start := time.Now()
		r := b.ok("", "sub", "orders", "--group", "g", "--idle-exit", "50ms", "--backoff", "1s", "--exec", "[ $EVENTBUS_ATTEMPT = 2 ]")
		require.Equal(t, "handled 1, retried 1, dead-lettered 0, discarded 0\n", r.account())
		require.Greater(t, time.Since(start), 800*time.Millisecond)
		require.Less(t, time.Since(start), 10*time.Second)
	})
}

// An event leased by another member keeps sub waiting, because it may be redelivered.
func TestSubIsNotIdleWhileAnotherHolds(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(numbered(1), "pub", "orders")
		release := filepath.Join(t.TempDir(), "release")
		other := b.start("sub", "orders", "--group", "g", "--exec", "while [ ! -e "+release+" ]; do sleep 0.02; done", "--count", "1")
		await(t, "it is held", func() bool {
			rows := b.groups()
			return len(rows) == 1 && rows[0].InFlight != 0 // NATS does not know the number
		})
		idle := b.start("sub", "orders", "--group", "g", "--idle-exit", "50ms")
		time.Sleep(300 * time.Millisecond)
		require.Empty(t, idle.ended)
		require.NoError(t, os.WriteFile(release, nil, 0o600))
		require.Zero(t, other.wait().code)
		require.Zero(t, idle.wait().code)
	})
}

func TestSubDrainsWhenInterrupted(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.ok(numbered(10), "pub", "orders")
		release := filepath.Join(t.TempDir(), "release")
		s := b.start("sub", "orders", "--group", "g", "--concurrency", "2", "--exec",
			"echo begin; while [ ! -e "+release+" ]; do sleep 0.02; done; echo end")
		await(t, "two run", func() bool { return strings.Count(s.out.String(), "begin") == 2 })
		s.cancel(errors.New("terminated"))
		time.Sleep(50 * time.Millisecond)
		require.Empty(t, s.ended, "it waits for what runs")
		require.NoError(t, os.WriteFile(release, nil, 0o600))
		r := s.wait()
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, 2, strings.Count(r.stdout, "begin\n"))
		require.Equal(t, 2, strings.Count(r.stdout, "end\n"))
		require.Equal(t, "handled 2, retried 0, dead-lettered 0, discarded 0\n", r.stderr)
		require.Len(t, b.ok("", "sub", "orders", "--group", "g", "--idle-exit", "50ms").lines(), 8)
	})
}

func TestSubDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ok(numbered(1), "pub", "orders")
	s := b.start("sub", "orders", "--group", "g", "--drain", "50ms", "--exec", "echo begin; sleep 100; echo end")
	await(t, "it runs", func() bool { return s.out.String() == "begin\n" })
	start := time.Now()
	r := s.end()
	require.Less(t, time.Since(start), 5*time.Second)
	require.Equal(t, 3, r.code, "it was killed, and its event given back: "+r.stderr)
	require.Equal(t, "begin\n", r.stdout)
	r = b.ok("", "sub", "orders", "--group", "g", "--count", "1")
	require.Equal(t, 1, r.events(t)[0].Attempt, "it was not its fault")
}

func TestSubKillsWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ok(numbered(1), "pub", "orders")
	pids := filepath.Join(t.TempDir(), "pids")
	start := time.Now()
	r := b.run("", "sub", "orders", "--group", "g", "--idle-exit", "100ms", "--timeout", "200ms", "--attempts", "2", "--backoff", "5ms",
		"--exec", "sleep 100 & echo $! >>"+pids+"; sleep 101; echo end")
	require.Equal(t, 2, r.code)
	require.Less(t, time.Since(start), 20*time.Second)
	require.Empty(t, r.stdout)
	require.Contains(t, r.stderr, "handled 0, retried 1, dead-lettered 1, discarded 0, killed 2\n")
	dead, err := b.mem.Read(t.Context(), "orders.dlq", "", 10)
	require.NoError(t, err)
	require.Contains(t, dead[0].Headers.Get("eventbus-dead-error"), "ended by force: eventbus: handler ran longer than 200ms")
	require.Equal(t, "timeout", dead[0].Headers.Get("eventbus-dead-error-class"))
	text, err := os.ReadFile(pids)
	require.NoError(t, err)
	require.Len(t, strings.Fields(string(text)), 2)
	for _, f := range strings.Fields(string(text)) {
		await(t, "its child has ended", func() bool {
			stat, err := os.ReadFile("/proc/" + f + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
}

// An event that was not printed is not acknowledged. Another member gets it without a
// counted attempt.
func TestSubWithAClosedOutput(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
	}{
		{"printed", nil},
		{"by a command", []string{"--exec", "cat"}},
		{"several at once", []string{"--concurrency", "4"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			b.ok(numbered(50), "pub", "orders")
			from, to, err := os.Pipe()
			require.NoError(t, err)
			var errs safeBuffer
			ended := make(chan int, 1)
			go func() {
				ended <- run(t.Context(), []backend.Driver{sharedDriver{b.b}},
					append([]string{"sub", "orders", "--group", "g", "--url", "test:", "--count", "50"}, row.args...), nil, &slowPipe{to}, &errs)
			}()
			first := make([]byte, 1)
			_, err = from.Read(first)
			require.NoError(t, err)
			from.Close()
			require.Equal(t, 1, <-ended)
			require.True(t, strings.HasSuffix(errs.String(), "\neventbus: sub: standard output: write |1: broken pipe\n"), errs.String())
			require.Contains(t, errs.String(), "dead-lettered 0, discarded 0\n")

			rest := b.ok("", "sub", "orders", "--group", "g", "--idle-exit", "50ms").events(t)
			var handled int
			_, err = fmt.Sscanf(errs.String(), "handled %d,", &handled)
			require.NoError(t, err)
			require.Positive(t, handled)
			require.Len(t, rest, 50-handled)
			for _, e := range rest {
				require.Equal(t, 1, e.Attempt)
			}
		})
	}
}

// A slowPipe lets its reader leave during a write.
type slowPipe struct{ *os.File }

func (p *slowPipe) Write(b []byte) (int, error) {
	time.Sleep(5 * time.Millisecond)
	return p.File.Write(b)
}

func TestSubStarts(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(numbered(10), "pub", "orders")
		all := b.ok("", "tail", "orders").events(t)
		r := b.ok("", "sub", "orders", "--group", "after", "--start", all[6].Position, "--idle-exit", "50ms")
		require.Equal(t, "e-7", r.events(t)[0].ID)
		require.Empty(t, b.ok("", "sub", "orders", "--group", "late", "--start", "latest", "--idle-exit", "50ms").stdout)
	})
}

func TestSubKeepsOrder(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(numbered(70), "pub", "orders")
		r := b.ok("", "sub", "orders", "--group", "g", "--idle-exit", "100ms", "--concurrency", "8", "--backoff", "5ms", "--exec",
			`[ $EVENTBUS_ATTEMPT = 1 ] && case $EVENTBUS_ID in *3) exit 75;; esac; echo "{\"key\":\"$EVENTBUS_KEY\",\"id\":\"$EVENTBUS_ID\"}"`)
		last := map[string]int{}
		for _, e := range r.events(t) {
			var n int
			_, err := fmt.Sscanf(e.ID, "e-%d", &n)
			require.NoError(t, err)
			before, ok := last[e.Key]
			require.True(t, !ok || before < n, "%d before %d", before, n)
			last[e.Key] = n
		}
		require.Len(t, r.lines(), 70)
	})
}

func TestSubRefuses(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"sub", "a"}, `required flag(s) "group" not set`},
		{[]string{"sub", "--group", "g"}, "sub: needs a topic: "},
		{[]string{"sub", "a", "--group", ""}, "sub: --group is empty; (each) gives each member a group of its own"},
		{[]string{"sub", "a", "--group", "g", "--ack", "never"}, `sub: --ack is "never", not one of on-success, on-receive`},
		{[]string{"sub", "a", "--group", "g", "--order", "x"}, `sub: --order is "x", not one of by-key, none, total`},
		{[]string{"sub", "a", "--group", "g", "--order", "total", "--concurrency", "2"}, "sub: --concurrency is 2, but total order needs 1"},
		{[]string{"sub", "a", "--group", "g", "--concurrency", "0"}, "sub: --concurrency must be positive"},
		{[]string{"sub", "a", "--group", "g", "--count", "-1"}, "sub: --count is negative"},
		{[]string{"sub", "a", "--group", "g", "--start", "erliest"}, `sub: --start "erliest" is not a position; did you mean earliest?`},
		{[]string{"sub", "a", "--group", "g", "--idle-exit", "-1s"}, "sub: --idle-exit is negative"},
		{[]string{"sub", "a", "--group", "g", "--idle-exit", "5"}, `invalid argument "5" for "--idle-exit" flag`},
		{[]string{"sub", "a", "--group", "g", "--attempts", "0"}, "sub: --attempts must be positive, or -1 for no limit"},
		{[]string{"sub", "a", "--group", "g", "--timeout", "0"}, "sub: --timeout must not be 0; negative means forever"},
		{[]string{"sub", "a", "--group", "g", "--lease", "0s"}, "sub: --lease must be positive"},
		{[]string{"sub", "a", "--group", "g", "--lease", "1ms"}, "sub: --lease is 1ms, less than 100ms"},
		{[]string{"sub", "a", "--group", "g", "--dead-letter", "a"}, "sub: --dead-letter is the topic itself"},
		{[]string{"sub", "a", "--group", "g", "--start", ""}, "sub: --start is empty"},
		{[]string{"sub", "a", "--group", "g", "--exec", "", "--idle-exit", "1ms"}, "sub: --exec is empty"},
		{[]string{"sub", "a", "--group", "g", "--start", "x"}, "sub: declare a/g: "},
		{[]string{"sub", "a", "--group", "g", "--drain", "0s"}, "sub: --drain must be positive"},
		{[]string{"sub", "a", "--group", "g", "--backoff", "0s"}, "sub: --backoff must be positive"},
		{[]string{"sub", "a", "--group", "g", "--max-backoff", "10ms", "--idle-exit", "1ms"}, "sub: --max-backoff is less than --backoff"},
		{[]string{"sub", "a", "--group", "g", "--max-backoff", "-5s", "--idle-exit", "1ms"}, "sub: --max-backoff is less than --backoff"},
	} {
		r := newBench(t).run("", row.args...)
		require.Equal(t, 1, r.code)
		require.Empty(t, r.stdout)
		require.True(t, strings.HasPrefix(r.stderr, "eventbus: "+row.want), "%s\nwant %s", r.stderr, row.want)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
}

// settling fails to acknowledge.
type settling struct{ backend.Backend }

func (b settling) Unwrap() backend.Backend { return b.Backend }

func (b settling) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := b.Backend.Attach(ctx, c)
	return settlingSource{src}, err
}

type settlingSource struct{ backend.Source }

func (s settlingSource) Unwrap() backend.Source { return s.Source }

func (s settlingSource) Ack(context.Context, []*backend.Delivery) error {
	return fmt.Errorf("no: %w", backend.ErrUnavailable)
}

func TestSubThatCannotSettleFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ok(numbered(1), "pub", "orders")
	b.b = settling{b.mem}
	r := b.run("", "sub", "orders", "--group", "g", "--count", "1", "--drain", "200ms")
	require.Equal(t, 3, r.code, r.stderr)
	require.Contains(t, r.stderr, "handled 1, retried 0, dead-lettered 0, discarded 0, not confirmed 1, left unsettled 1\n")
	require.Contains(t, r.stderr, "\neventbus: sub: the drain timed out: 0 commands killed, 1 event left\n")
}

// The exit code of sub, and its account, say whether a command was killed.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"clean", []string{"--exec", "true"}, 0, ""},
		{"retried", []string{"--exec", "test $EVENTBUS_ATTEMPT = 2"}, 0, ""},
		{"dead-lettered", []string{"--exec", "exit 65"}, 1, "1 event failed for good"},
		{"dead-lettered, as wanted", []string{"--exec", "exit 65", "--fail-on-dead-letter=false"}, 0, ""},
		{"killed by a signal", []string{"--exec", "test $EVENTBUS_ATTEMPT = 2 || kill -9 $$"}, 2, "1 command killed"},
		{"killed at its timeout", []string{"--exec", "test $EVENTBUS_ATTEMPT = 2 || sleep 30", "--timeout", "100ms"}, 2, "1 command killed"},
		{"killed, and failed for good", []string{"--exec", "kill -9 $$", "--attempts", "1"}, 2, "1 command killed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			b.ok("", "pub", "orders", "--data", "x")
			r := b.run("", append([]string{"sub", "orders", "--group", "g", "--idle-exit", "100ms", "--backoff", "1ms", "--json"}, row.args...)...)
			require.Equal(t, row.code, r.code, r.stderr)
			require.Contains(t, r.stderr, row.says)
			var a jobSummary
			for line := range strings.Lines(r.stderr) {
				if strings.HasPrefix(line, "{") {
					require.NoError(t, json.Unmarshal([]byte(line), &a))
				}
			}
			require.Equal(t, row.code, a.Exit)
			if row.code == 2 {
				require.Equal(t, int64(1), a.Killed)
			}
		})
	}
}

// sub ends with exit code 3 if the drain times out.
func TestExitCodeOfADrain(t *testing.T) {
	t.Parallel()
	s := brokerBench{redistest.Start(t), t}
	require.Zero(t, s.run(numbered(1), "pub", "orders").code)
	for _, command := range []string{"echo begun; sleep 30", "trap '' TERM; echo begun; sleep 30 & wait; sleep 30"} {
		cmd := s.process("sub", "orders", "--group", "g", "--exec", command, "--drain", "100ms", "--lease", "1s")
		var out, errs safeBuffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Start())
		await(t, "it runs", func() bool { return strings.HasPrefix(out.String(), "begun\n") })
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		require.Equal(t, 3, exit.ExitCode(), errs.String())
	}
}

// A command that fails shows at once: the first failed attempt is a line of the log, and the
// account holds the last error of each event that waits. Many failures are few lines.
func TestSubShowsFailures(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(strings.Repeat(`{"data":1}`+"\n", 50), "pub", "orders")
		s := b.start("sub", "orders", "--group", "g", "--backoff", "1h", "--max-backoff", "2h", "--exec", "echo no stock >&2; exit 1")
		await(t, "each was tried", func() bool { return strings.Count("\n"+s.errs.String(), "\nno stock") == 50 })
		r := s.end()
		require.Regexp(t, `time=\S+ level=WARN msg="eventbus: handler failed" topic=orders group=g id=\S+ position=\S+ attempt=1 max_attempts=12 `+
			`next_attempt_in=\S+ error="exit status 1: no stock" error_class=\*exec.ExitError\n`, r.stderr)
		require.Equal(t, 2, strings.Count(r.stderr, "handler failed"))
		require.Contains(t, r.stderr, " repeated=49 first=")
		require.Regexp(t, `handled 0, retried 50, dead-lettered 0, discarded 0, failing 50, the last \S+: exit status 1: no stock\n`, r.account())
	})
}
