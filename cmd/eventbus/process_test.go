//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// process is the command as a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), "EVENTBUS_TEST_IS_COMMAND=1")
	return cmd
}

// A closed pipe is an error, and not the silent end of the process in the middle
// of its work.
func TestAClosedPipeIsAnError(t *testing.T) {
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
	cmd := process(t, "pub", "orders", "--url", "mem:", "--json")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	// More than a pipe and what pub keeps: when it is written, pub is at work.
	_, err = stdin.Write(bytes.Repeat([]byte("{}\n"), 100_000))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
	require.True(t, ok)
	require.Equal(t, 1, exit.ExitCode(), exit)
	require.Regexp(t, `^eventbus: pub: .*terminated.*; \d+ events are published(, and perhaps more)?\n$`, errs.String())
}
