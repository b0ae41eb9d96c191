// Package shell handles events with a command of the shell.
package shell

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
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/lines"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
)

// The exit codes that say more than that the command failed, from sysexits.h.
const (
	ExitRetry     = 75 // EX_TEMPFAIL: as any other failure
	ExitPermanent = 65 // EX_DATAERR: another attempt is no use
)

const (
	// grace is the time between SIGTERM and SIGKILL. A drain that has run out of
	// patience waits a second for what it has cancelled.
	grace = 500 * time.Millisecond

	// outputWait is how long, after the command has ended or was told to, others
	// may keep its output open.
	outputWait = grace + 200*time.Millisecond

	tailBytes = 2 << 10 // of stderr, as the text of the error
)

// A Handler runs a command for each event. The event is one line of JSON on its
// standard input and, in part, in its environment.
type Handler struct {
	command        string
	stdout, stderr *lines.Writer
}

// New returns a Handler that passes on, line by line, what its commands write.
func New(command string, stdout, stderr *lines.Writer) (*Handler, error) {
	if _, err := exec.LookPath("sh"); err != nil {
		return nil, err
	}
	return &Handler{command: command, stdout: stdout, stderr: stderr}, nil
}

// Handle is an eventbus.Handler. Exit code 0 is success, ExitPermanent an error
// marked as permanent, all else an error. When ctx ends the command and whatever
// it has started in its process group get SIGTERM, and SIGKILL half a second
// later.
func (h *Handler) Handle(ctx context.Context, d *eventbus.Delivery) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", h.command)
	group := newGroup(cmd)
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
		err = nil // the command has ended well, but not what it has started
	}
	if err == nil {
		err = closed
	}
	return h.verdict(ctx, err, last.text())
}

func (h *Handler) verdict(ctx context.Context, err error, said string) error {
	if err == nil {
		return nil
	}
	exit, ended := errors.AsType[*exec.ExitError](err)
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
	for i, v := range env { // no event of ours has them, but no command starts with one
		env[i] = strings.ReplaceAll(v, "\x00", "")
	}
	return env
}

// careless keeps errors of stderr to itself: an event that is handled is
// handled even if nobody reads the log.
type careless struct{ w io.Writer }

func (c careless) Write(p []byte) (int, error) {
	_, _ = c.w.Write(p)
	return len(p), nil
}

// A tail is the end of what was written.
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

// text begins with a whole line if there is one.
func (t *tail) text() string {
	kept := t.kept
	if t.cut {
		if i := bytes.IndexByte(kept, '\n'); i >= 0 && i < len(kept)-1 {
			kept = kept[i+1:]
		}
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(kept)), "")
}
