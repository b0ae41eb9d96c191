//go:build unix

package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

// The exit code of sub, and its account, say whether a command was killed.
func TestExitCodes(t *testing.T) {
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
			var a account
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

// sub ends with exit code 3 if the time for the drain is over.
func TestExitCodeOfADrain(t *testing.T) {
	server := redistest.Start(t)
	t.Setenv(urlVariable, server.URL())
	require.Zero(t, runOnReal(t, numbered(1), "pub", "orders").code)
	for _, command := range []string{"echo begun; sleep 30", "trap '' TERM; echo begun; sleep 30 & wait; sleep 30"} {
		cmd := process(t, "sub", "orders", "--group", "g", "--exec", command, "--drain", "100ms", "--lease", "1s")
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
