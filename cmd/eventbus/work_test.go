//go:build unix

package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

const workFile = `bus:
  url: "test:"
  defaults: {timeout: 10s, retry: {attempts: 2, backoff: 1ms..1ms}}
  subscriptions:
    audit: {topic: orders, group: audit, start: latest}
    billing: {topic: orders, group: billing, concurrency: 2}
`

// work runs the command work on the backend of b.
func (b *bench) work(file string, args ...string) result {
	return b.ends(append([]string{"work", "--config", configFile(b.t, file), "--idle-exit", "100ms"}, args...)...)
}

// Each subscription of the file runs the command, with the defaults of the file.
func TestWork(t *testing.T) {
	b := newBench(t)
	b.ok("", "groups", "create", "orders", "billing") // otherwise audit, which begins with the next event, would settle all
	b.ok(numbered(3), "pub", "orders")
	r := b.work(workFile, "--exec", `echo $EVENTBUS_GROUP $EVENTBUS_ID $EVENTBUS_ATTEMPT; [ $EVENTBUS_ID != e-1 ]`)
	require.Equal(t, 1, r.code, r.stderr)
	require.ElementsMatch(t, []string{"billing e-0 1", "billing e-1 1", "billing e-1 2", "billing e-2 1"}, r.lines(), "audit begins with the next event")
	require.Contains(t, r.account(), "audit: handled 0, retried 0, dead-lettered 0, discarded 0\nbilling: handled 2, retried 1, dead-lettered 1, discarded 0\n")
	require.Contains(t, r.stderr, "eventbus: work: 1 event failed for good\n")

	b.ok(numbered(2), "pub", "orders")
	r = b.work(workFile, "--exec", "true", "--json", "--only", "audit")
	require.Zero(t, r.code, r.stderr)
	var a jobSummary
	require.NoError(t, json.Unmarshal([]byte(r.account()), &a))
	require.Equal(t, jobSummary{Name: "audit", Handled: 2}, a)
}

// The exit code is the greatest one of all subscriptions.
func TestWorkExitCodes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		command string
		code    int
		says    string
	}{
		{"true", 0, ""},
		{"[ $EVENTBUS_GROUP = audit ] || exit 65", 1, "1 event failed for good"},
		{"case $EVENTBUS_GROUP in audit) exit 65;; *) [ $EVENTBUS_ATTEMPT = 2 ] || kill -9 $$;; esac", 2, "1 command killed"},
	} {
		b := newBench(t)
		b.ok("", "groups", "create", "orders", "audit")
		b.ok(numbered(1), "pub", "orders")
		r := b.work(workFile, "--exec", row.command)
		require.Equal(t, row.code, r.code, r.stderr)
		require.Contains(t, r.stderr, row.says)
	}
}

func TestWorkRefuses(t *testing.T) {
	for _, row := range []struct {
		file string
		args []string
		want string
	}{
		{workFile, nil, `required flag(s) "exec" not set`},
		{workFile, []string{"--exec", ""}, "work: --exec is empty"},
		{workFile, []string{"--exec", "true", "--drain", "0s"}, "work: --drain must be positive"},
		{workFile, []string{"--exec", "true", "--only", "biling"}, `work: --only: the file has no subscription "biling"; did you mean "billing"?`},
		{workFile, []string{"--exec", "true", "--only", "audit,audit"}, `work: --only has "audit" twice`},
		{"bus: {url: 'test:'}", []string{"--exec", "true"}, "work: the file has no subscriptions"},
		{"bus: {url: 'test:', subscriptions: {a: {topic: t, group: g, batch: {size: 3}}}}", []string{"--exec", "true"}, "work: bus.subscriptions.a.batch is set, but a command handles single events"},
		{"bus: {url: 'test:', subscriptions: {a: {topic: t, group: g, timeout: 0s}}}", []string{"--exec", "true"}, "work: 1 error"},
		{"bus: {url: 'nowhere:', subscriptions: {a: {topic: t, group: g}}}", []string{"--exec", "true"}, "work: "},
	} {
		r := newBench(t).work(row.file, row.args...)
		require.Equal(t, 1, r.code, r.stderr)
		require.Empty(t, r.stdout)
		require.Contains(t, r.stderr, "eventbus: "+row.want)
	}
	require.Contains(t, newBench(t).ends("work", "--config", "/nowhere.yaml", "--exec", "true").stderr, "no such file")
}

// A signal drains all groups. A second one kills the commands that still run, and the account is
// printed all the same.
func TestWorkGetsSignals(t *testing.T) {
	t.Parallel()
	s := brokerBench{redistest.Start(t), t}
	file := configFile(t, strings.ReplaceAll(workFile, "test:", "${"+urlVariable+"}"))
	for _, row := range []struct {
		group, command string
		signals        int
		code           int
		says           string
	}{
		{"one", "echo begun; sleep 0.5", 1, 0, "billing: handled 1, retried 0, dead-lettered 0, discarded 0\n"},
		{"two", "echo begun; sleep 100", 2, 3, "eventbus: work: the drain timed out: 1 command killed, 0 events left\n"},
	} {
		require.Zero(t, s.run(numbered(1), "pub", "orders").code)
		cmd := s.process("work", "--config", file, "--exec", row.command, "--drain", "1h", "--only", "billing")
		var out, errs safeBuffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Start())
		await(t, "it runs", func() bool { return out.String() == "begun\n" })
		for i := range row.signals {
			if i > 0 {
				time.Sleep(1200 * time.Millisecond) // until another signal counts
			}
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		}
		if err := cmd.Wait(); row.code == 0 {
			require.NoError(t, err, errs.String())
		} else {
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, row.code, exit.ExitCode(), errs.String())
		}
		require.Contains(t, errs.String(), row.says)
	}
}
