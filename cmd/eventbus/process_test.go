//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

// A closed pipe is reported as an error; it does not end the process silently.
func TestAClosedPipeIsAnError(t *testing.T) {
	t.Parallel()
	from, to, err := os.Pipe()
	require.NoError(t, err)
	cmd := process(t, "demo", "--url", "mem:")
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = to, &errs
	from.Close()
	require.NoError(t, cmd.Start())
	to.Close()
	exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
	require.True(t, ok)
	require.Equal(t, 1, exit.ExitCode(), exit)
	require.Equal(t, "eventbus: demo: write /dev/stdout: broken pipe\n", errs.String())
}

func TestASignalEndsPub(t *testing.T) {
	t.Parallel()
	cmd := process(t, "pub", "orders", "--url", redistest.Start(t).URL(), "--json")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	// This is more than the pipe and pub's queue hold, so pub is publishing once it is
	// written.
	_, err = stdin.Write(bytes.Repeat([]byte("{}\n"), 100_000))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
	require.True(t, ok)
	require.Equal(t, 1, exit.ExitCode(), exit)
	require.Regexp(t, `^eventbus: pub: .*terminated.*; published: \d+ events?(, and perhaps more)?\n$`, errs.String())
}

// timeout(1) sends its signal twice at once. The second one must not end the drain.
func TestASignalThatComesTwice(t *testing.T) {
	t.Parallel()
	s := brokerBench{redistest.Start(t), t}
	require.Zero(t, s.run(numbered(1), "pub", "orders").code)
	cmd := s.process("sub", "orders", "--group", "g", "--exec", "echo begun; sleep 0.5")
	var out, errs safeBuffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	await(t, "it runs", func() bool { return out.String() == "begun\n" })
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	time.Sleep(100 * time.Millisecond) // the first one is received
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), errs.String())
	require.Equal(t, "handled 1, retried 0, dead-lettered 0, discarded 0\n", errs.String())
}

// When a broker dies and returns, the bus's log reports it once and the client library's
// does not. Events published after that are handled.
func TestAServerThatDies(t *testing.T) {
	onBrokers(t, func(t *testing.T, s brokerBench) {
		require.Zero(t, s.run(numbered(1), "pub", "orders").code)
		cmd := s.process("sub", "orders", "--group", "g")
		var out, errs safeBuffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Start())
		await(t, "one is handled", func() bool { return strings.Count(out.String(), "\n") == 1 })
		s.Kill()
		// The first failed call is reported, be it a read or a check for scheduled events.
		await(t, "it says so", func() bool { return strings.Contains(errs.String(), ` failed" topic=orders`) })
		r := s.run(numbered(1), "pub", "orders", "--connect-timeout", "300ms")
		require.Equal(t, 1, r.code)
		require.True(t, strings.HasPrefix(r.stderr, "eventbus: pub: "), r.stderr)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		s.Run()
		require.Zero(t, s.run("", "pub", "orders", "--data", "last").code)
		await(t, "the last one is handled", func() bool { return strings.Contains(out.String(), `"last"`) })
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait(), errs.String())
		lines := strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n")
		last := len(lines) - 1
		require.Regexp(t, `^handled \d, retried 0, dead-lettered 0, discarded 0$`, lines[last])
		for _, l := range lines[:last] {
			require.True(t, strings.HasPrefix(l, "time="), "not a line of the log: %s", l)
		}
		require.LessOrEqual(t, last, 5, errs.String())
	})
}

// A missing permission is one line of the command, and none of the client library.
func TestWhatNATSForbids(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "server.conf")
	require.NoError(t, os.WriteFile(conf, []byte(`
		authorization: {users: [
			{user: owner, password: secret}
			{user: weak, password: secret, permissions: {subscribe: "_INBOX.>", publish: "$JS.API.INFO"}}
		]}
		no_auth_user: owner
	`), 0o600))
	server := natstest.Start(t, "-c", conf)
	for _, args := range [][]string{{"topics"}, {"pub", "orders", "--data", "x"}, {"sub", "orders", "--group", "g"}, {"tail", "orders"}} {
		cmd := process(t, append(args, "--url", "nats://weak:secret@"+server.Addr())...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.Error(t, cmd.Run())
		require.True(t, strings.HasPrefix(errs.String(), "eventbus: "+args[0]+": "), errs.String())
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
		require.Contains(t, errs.String(), "denied")
		require.NotContains(t, errs.String(), "secret")
	}
}
