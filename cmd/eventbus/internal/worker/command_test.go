//go:build unix

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
)

var event = &eventbus.Delivery{
	Event: eventbus.Event{ID: "e-1", Type: "order.placed", Key: "c-1", Position: "7", ContentType: "application/json", Payload: []byte(`{"a":1}`)},
	Topic: "orders", Group: "billing", Attempt: 3,
}

// run handles an event with a command and returns the command's output.
func run(t *testing.T, ctx context.Context, command string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	h, err := NewCommandHandler(command, NewLineWriter(&out), NewLineWriter(&errs))
	require.NoError(t, err)
	err = h.Handle(ctx, event)
	return out.String(), errs.String(), err
}

func TestTheEventIsOnStandardInput(t *testing.T) {
	stdout, stderr, err := run(t, t.Context(), "cat; echo done >&2")
	require.NoError(t, err)
	require.Equal(t, "done\n", stderr)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &got), "one object: %s", stdout)
	require.Equal(t, map[string]any{
		"id": "e-1", "type": "order.placed", "key": "c-1", "topic": "orders", "group": "billing",
		"attempt": 3.0, "position": "7", "data": map[string]any{"a": 1.0},
	}, got)
}

func TestTheEventIsInTheEnvironment(t *testing.T) {
	stdout, _, err := run(t, t.Context(), `echo "$EVENTBUS_ID,$EVENTBUS_TOPIC,$EVENTBUS_TYPE,$EVENTBUS_KEY,$EVENTBUS_ATTEMPT,$EVENTBUS_POSITION,$EVENTBUS_GROUP"`)
	require.NoError(t, err)
	require.Equal(t, "e-1,orders,order.placed,c-1,3,7,billing\n", stdout)

	var out bytes.Buffer
	h, err := NewCommandHandler(`printf %s "$EVENTBUS_KEY"`, NewLineWriter(&out), NewLineWriter(&out))
	require.NoError(t, err)
	require.NoError(t, h.Handle(t.Context(), &eventbus.Delivery{Event: eventbus.Event{Key: "a\x00b"}}))
	require.Equal(t, "ab\n", out.String())
}

func TestExitCodes(t *testing.T) {
	permanent := fmt.Sprintf("%T", eventbus.Permanent(io.EOF))
	for _, row := range []struct {
		name, command, want string
		permanent           bool
	}{
		{"success", "exit 0", "", false},
		{"success without reading", "exec <&-; exit 0", "", false},
		{"try again", "echo busy >&2; exit 75", "exit status 75: busy", false},
		{"never again", "echo what >&2; exit 65", "exit status 65: what", true},
		{"any other", "echo a >&2; echo b >&2; exit 3", "exit status 3: a\nb", false},
		{"nothing said", "exit 1", "exit status 1", false},
		{"killed", "kill -9 $$", "signal: killed", false},
		{"no such command", "nowhere-at-all 2>/dev/null", "exit status 127", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, _, err := run(t, t.Context(), row.command)
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.want)
			require.Equal(t, row.permanent, fmt.Sprintf("%T", err) == permanent)
		})
	}
}

func TestTheErrorIsTheEndOfStderr(t *testing.T) {
	_, stderr, err := run(t, t.Context(), `i=0; while [ $i -lt 1000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`)
	require.Equal(t, 1000, strings.Count(stderr, "\n"), "all is passed on")
	text := strings.TrimPrefix(err.Error(), "exit status 1: ")
	require.True(t, strings.HasSuffix(text, "\nline 999"))
	require.True(t, strings.HasPrefix(text, "line "), "whole lines: %.20s", text)
	require.LessOrEqual(t, len(text), tailBytes)
	require.Greater(t, len(text), tailBytes-20)
}

// processes starts a shell with a child and returns the file that gets both process IDs.
func processes(t *testing.T) (file string, pids func() []int) {
	file = filepath.Join(t.TempDir(), "pids")
	return file, func() (pids []int) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, f := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(f)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
		return pids
	}
}

// gone waits until a process has ended. A zombie counts as ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 200 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

func TestTheWholeGroupEndsWithTheContext(t *testing.T) {
	for _, row := range []struct{ name, command string }{
		{"it dies of SIGTERM", "sleep 100 & echo $$ $! >%s; sleep 101; echo no"},
		{"it does not", "trap '' TERM; sleep 100 & echo $$ $! >%s; sleep 101; sleep 102"},
		{"a child does not, and has no output", "(trap '' TERM; sleep 100; sleep 101) >/dev/null 2>&1 & echo $$ $! >%s; wait"},
		{"it exits with 0", "trap 'exit 0' TERM; sleep 100 & echo $$ $! >%s; wait"},
	} {
		t.Run(row.name, func(t *testing.T) {
			file, pids := processes(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				for range 500 {
					if text, _ := os.ReadFile(file); strings.HasSuffix(string(text), "\n") {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				cancel(eventbus.ErrShutdown)
			}()
			stdout, _, err := run(t, ctx, fmt.Sprintf(row.command, file))
			require.ErrorIs(t, err, eventbus.ErrShutdown)
			require.Empty(t, stdout)
			require.Len(t, pids(), 2)
			for _, pid := range pids() {
				gone(t, pid)
			}
		})
	}
}

// A command of the shell that handles SIGTERM has the grace, even if the shell has ended.
func TestTheWholeGroupHasTheGrace(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/charge", []byte(`#!/bin/sh
trap 'sleep 0.1; echo clean >`+dir+`/clean; exit 1' TERM
echo up >`+dir+`/up
while :; do sleep 0.02; done
`), 0o700))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for _, err := os.Stat(dir + "/up"); err != nil && t.Context().Err() == nil; _, err = os.Stat(dir + "/up") {
			time.Sleep(5 * time.Millisecond)
		}
		cancel(eventbus.ErrShutdown)
	}()
	_, _, err := run(t, ctx, dir+"/charge >/dev/null 2>&1; echo after")
	require.ErrorIs(t, err, eventbus.ErrShutdown)
	require.FileExists(t, dir+"/clean", "it had 100 ms of work after SIGTERM")
}

func TestWhatACommandLeavesBehindIsNotWaitedFor(t *testing.T) {
	file, pids := processes(t)
	start := time.Now()
	stdout, _, err := run(t, t.Context(), "sleep 100 & echo $$ $! >"+file+"; echo done")
	require.NoError(t, err, "the exit code says so")
	require.Equal(t, "done\n", stdout)
	require.Less(t, time.Since(start), 20*time.Second)
	gone(t, pids()[1])
}

func TestAContextThatIsOverStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(eventbus.ErrLeaseLost)
	stdout, _, err := run(t, ctx, "echo no")
	require.ErrorIs(t, err, eventbus.ErrLeaseLost)
	require.Empty(t, stdout)
}

func TestLinesOfManyCommandsStayWhole(t *testing.T) {
	var out, errs bytes.Buffer
	h, err := NewCommandHandler(`i=0; while [ $i -lt 50 ]; do printf "$EVENTBUS_ID-"; printf "$i\n"; printf "e" >&2; echo "$EVENTBUS_ID-$i" >&2; i=$((i+1)); done`,
		NewLineWriter(&out), NewLineWriter(&errs))
	require.NoError(t, err)
	var done sync.WaitGroup
	for id := range 8 {
		done.Go(func() {
			if err := h.Handle(t.Context(), &eventbus.Delivery{Event: eventbus.Event{ID: strconv.Itoa(id)}}); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	for _, s := range []struct{ text, prefix string }{{out.String(), ""}, {errs.String(), "e"}} {
		got := map[string]int{}
		for l := range strings.Lines(s.text) {
			got[l]++
		}
		require.Len(t, got, 8*50)
		for id := range 8 {
			for i := range 50 {
				require.Equal(t, 1, got[fmt.Sprintf("%s%d-%d\n", s.prefix, id, i)])
			}
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	for _, command := range []string{"echo a", "printf a"} {
		h, err := NewCommandHandler(command, NewLineWriter(full{}), NewLineWriter(io.Discard))
		require.NoError(t, err)
		require.ErrorIs(t, h.Handle(t.Context(), event), syscall.EPIPE)
	}
	h, err := NewCommandHandler("echo a >&2", NewLineWriter(io.Discard), NewLineWriter(full{}))
	require.NoError(t, err)
	require.NoError(t, h.Handle(t.Context(), event), "what is logged is not part of the work")
}
