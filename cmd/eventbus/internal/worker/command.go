// Package worker contains the parts that eventbus sub and eventbus work are built from: the handler that runs a shell command
// for each event, the shared output of these commands, and the reasons to stop.
package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
)

// Exit codes with a meaning beyond failure, from sysexits.h.
const (
	ExitRetry     = 75 // EX_TEMPFAIL: like any other failure
	ExitPermanent = 65 // EX_DATAERR: no retry
)

const (
	// grace is the time between SIGTERM and SIGKILL. It is less than a second because a drain that times out waits one
	// second for the handlers that it has cancelled.
	grace = 500 * time.Millisecond

	// outputWait is how long child processes may keep the output open after the command has ended or was terminated.
	outputWait = grace + 200*time.Millisecond

	tailBytes = 2 << 10 // how much of the end of stderr the text of an error contains
)

// A CommandHandler runs a shell command for each event. The command gets the event as one line of JSON on standard input
// and, in part, in its environment.
type CommandHandler struct {
	command        string
	stdout, stderr *LineWriter
	killed, late   atomic.Int64
}

// Killed returns how many commands were ended by a signal, and how many of those because a drain timed out.
func (h *CommandHandler) Killed() (all, late int64) { return h.killed.Load(), h.late.Load() }

// NewCommandHandler returns a CommandHandler that passes on the output of its commands line by line.
func NewCommandHandler(command string, stdout, stderr *LineWriter) (*CommandHandler, error) {
	if _, err := exec.LookPath("sh"); err != nil {
		return nil, err
	}
	return &CommandHandler{command: command, stdout: stdout, stderr: stderr}, nil
}

// Handle is an eventbus.Handler. Exit code 0 is success, ExitPermanent a permanent error, and any other code an error that
// is retried. When ctx ends, the command's process group gets SIGTERM, and SIGKILL half a second later.
func (h *CommandHandler) Handle(ctx context.Context, d *eventbus.Delivery) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", h.command)
	group := newProcessGroup(cmd)
	cmd.Cancel = group.terminate
	cmd.WaitDelay = outputWait
	cmd.Env = append(os.Environ(), environment(d)...)
	cmd.Stdin = bytes.NewReader(ndjson.Append(nil, d))
	stdout, stderr := h.stdout.Stream(), h.stderr.Stream()
	var last tail
	cmd.Stdout, cmd.Stderr = stdout, io.MultiWriter(&last, careless{stderr})
	err := cmd.Run()
	group.end(ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay))
	closed := stdout.Close()
	_ = stderr.Close() // see careless
	if errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		err = nil // the command succeeded; a child keeps the output open
	}
	if err == nil {
		err = closed
	}
	return h.verdict(ctx, err, last.text())
}

func (h *CommandHandler) verdict(ctx context.Context, err error, said string) error {
	if err == nil {
		return nil
	}
	exit, ended := errors.AsType[*exec.ExitError](err)
	if ctx.Err() != nil || ended && exit.ExitCode() < 0 { // by a signal
		h.killed.Add(1)
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), eventbus.ErrShutdown) {
		h.late.Add(1)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("ended by force: %w", context.Cause(ctx))
	}
	if said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	if ended && exit.ExitCode() == ExitPermanent {
		return eventbus.Permanent(err)
	}
	return err
}

func environment(d *eventbus.Delivery) []string {
	env := []string{
		"EVENTBUS_ID=" + d.ID,
		"EVENTBUS_TOPIC=" + d.Topic,
		"EVENTBUS_TYPE=" + d.Type,
		"EVENTBUS_KEY=" + d.Key,
		"EVENTBUS_ATTEMPT=" + strconv.Itoa(d.Attempt),
		"EVENTBUS_POSITION=" + d.Position,
		"EVENTBUS_GROUP=" + d.Group,
	}
	for i, v := range env { // a process cannot be started with a NUL in its environment
		env[i] = strings.ReplaceAll(v, "\x00", "")
	}
	return env
}

// careless ignores errors of stderr: an unread log must not make a handled event fail.
type careless struct{ w io.Writer }

func (c careless) Write(p []byte) (int, error) {
	_, _ = c.w.Write(p)
	return len(p), nil
}

// A tail keeps the end of an output.
type tail struct {
	kept []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept, t.cut = append(t.kept[:0], t.kept[over:]...), true
	}
	return len(p), nil
}

// text returns the kept output from the beginning of a line, if it has one.
func (t *tail) text() string {
	kept := t.kept
	if t.cut {
		if i := bytes.IndexByte(kept, '\n'); i >= 0 && i < len(kept)-1 {
			kept = kept[i+1:]
		}
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(kept)), "")
}
