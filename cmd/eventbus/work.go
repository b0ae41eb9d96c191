package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/count"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/idle"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/lines"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/quota"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/shell"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A work handles the events of the command sub, and finds reasons to end it, such as idle
// time.
//
// Its method start begins goroutines that wait for such a reason.
type work struct {
	stdout, stderr *lines.Writer
	handler        eventbus.Handler
	shell          *shell.Handler // runs the command; nil: there is none
	onReceive      bool           // whether events are acknowledged on receipt
	quota          *quota.Quota   // bounds how many events succeed; nil: no bound
	idleExit       time.Duration
	patience       time.Duration // the most time to wait for an answer of the backend
	idle           *idle.Watch
	handled        atomic.Int64
	watching       sync.WaitGroup
}

func newWork(cmd *cobra.Command, s *sub) (*work, error) {
	w := &work{
		stdout: lines.New(cmd.OutOrStdout()), stderr: lines.New(cmd.ErrOrStderr()),
		onReceive: s.options.Ack == eventbus.AckOnReceive,
		idleExit:  s.idleExit, patience: s.patience, idle: idle.New(),
	}
	w.handler = w.print
	if s.exec != "" {
		h, err := shell.New(s.exec, w.stdout, w.stderr)
		if err != nil {
			return nil, fmt.Errorf("--exec: %w", err)
		}
		w.handler, w.shell = w.run(h.Handle), h
	}
	if s.count > 0 {
		w.quota = quota.New(s.count, limiter.Both(s.options.MaxInFlight, 64<<20))
		s.options.Limiter = w.quota
	}
	return w, nil
}

// print is the handler if no command is given. It prints the event.
func (w *work) print(_ context.Context, d *eventbus.Delivery) error {
	if _, err := w.stdout.Write(ndjson.Append(nil, d)); err != nil {
		return notPrinted
	}
	return nil // even if stdout has failed since, because this line was written
}

// run returns the handler if a command is given: it calls h. After an error of stdout it
// cannot tell which event's output was lost, so that no event counts as handled.
func (w *work) run(h eventbus.Handler) eventbus.Handler {
	return func(ctx context.Context, d *eventbus.Delivery) error {
		err := h(ctx, d)
		if w.stdout.Err() != nil {
			return notPrinted
		}
		return err
	}
}

// notPrinted is the error that gives an event to another member, without a counted failure.
var notPrinted = eventbus.Snooze(0)

// handle is the handler that the bus calls. It calls w.handler and counts successes.
func (w *work) handle(ctx context.Context, d *eventbus.Delivery) error {
	w.idle.Begin()
	defer w.idle.End()
	if err := w.handler(ctx, d); err != nil {
		return err
	}
	w.handled.Add(1)
	if w.quota != nil {
		w.quota.Succeeded()
	}
	return nil
}

// The reasons for which the command sub ends by itself.
var (
	errOutput  = errors.New("standard output")
	errCounted = errors.New("as many as wanted have succeeded")
	errIdle    = errors.New("nothing to do")
)

// start starts goroutines that wait for a reason to end sub, and call stop with it.
func (w *work) start(ctx context.Context, stop context.CancelCauseFunc, bus *eventbus.Bus, s *eventbus.Subscription) {
	w.watching.Go(func() {
		var counted <-chan struct{}
		if w.quota != nil {
			counted = w.quota.Done()
		}
		select {
		case <-w.stdout.Broken():
			stop(fmt.Errorf("%w: %w", errOutput, w.stdout.Err()))
		case <-counted:
			stop(errCounted)
		case <-ctx.Done():
		}
	})
	if w.idleExit > 0 {
		w.watching.Go(func() {
			busy := func(ctx context.Context) bool { return w.busy(ctx, bus, s) }
			if w.idle.Wait(ctx, w.idleExit, busy) == nil {
				stop(errIdle)
			}
		})
	}
}

// busy reports whether events may wait for the group. If the backend does not answer, busy
// reports true.
func (w *work) busy(ctx context.Context, bus *eventbus.Bus, s *eventbus.Subscription) bool {
	if state, _ := s.State(); state != observer.Running {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	stats, err := backend.StatsOf(ctx, bus.Backend(), s.Topic(), s.Group())
	if err != nil {
		return tolerated(err) != nil
	}
	// A backend may not know how many events are in flight or delayed. Oldest is set if any
	// event is unacknowledged.
	return stats.Lag > 0 || stats.InFlight > 0 || stats.Delayed > 0 || !stats.Oldest.IsZero()
}

// An account counts the deliveries of sub by outcome.
type account struct {
	Handled      int64  `json:"handled"`
	Retried      int64  `json:"retried"`
	DeadLettered int64  `json:"dead_lettered"`
	Discarded    int64  `json:"discarded"`
	Unconfirmed  int64  `json:"unconfirmed"` // how many of the events above have no confirmed acknowledgement, and are redelivered
	LeasesLost   int64  `json:"leases_lost"`
	Abandoned    int64  `json:"abandoned"`
	Killed       int64  `json:"killed"`               // commands that were ended by a signal
	Late         int64  `json:"late"`                 // of these, at the end of the time for the drain
	Exit         int    `json:"exit"`                 // the exit code
	Failing      int    `json:"failing"`              // events that have failed and wait for another attempt
	LastError    string `json:"last_error,omitempty"` // of the newest of Failing
}

func (w *work) account(s *eventbus.Subscription) account {
	c := s.Counts()
	a := account{
		Handled: w.handled.Load(), Retried: c.Retried, DeadLettered: c.DeadLettered, Discarded: c.Discarded,
		LeasesLost: c.LeasesLost, Abandoned: c.Abandoned,
	}
	newest, failing := s.Failing()
	if a.Failing = failing; failing > 0 {
		a.LastError = newest[0].ID + ": " + newest[0].Error
	}
	if w.shell != nil {
		a.Killed, a.Late = w.shell.Killed()
	}
	if !w.onReceive {
		a.Unconfirmed = max(a.Handled+a.DeadLettered+a.Discarded-c.Acknowledged, 0)
	}
	return a
}

// err returns an error that says why sub did not end clean. It leaves out events whose lease
// was lost, because another member handles these. drained is the error of the drain. With
// failOnDead, events that have failed for good are an error too.
func (a account) err(drained error, failOnDead bool) error {
	var left *eventbus.DrainError
	switch failed := a.DeadLettered + a.Discarded; {
	case errors.As(drained, &left):
		return &exitError{drained, exitDrained}
	case drained != nil:
		return drained
	case a.Unconfirmed > a.LeasesLost:
		return fmt.Errorf("not confirmed: %s; these events come again", count.Of(a.Unconfirmed-a.LeasesLost, "acknowledgement"))
	case a.Late > 0:
		return &exitError{fmt.Errorf("the time for the drain was over: %s killed", count.Of(a.Late, "command")), exitDrained}
	case a.Killed > 0:
		return &exitError{fmt.Errorf("%s killed", count.Of(a.Killed, "command")), exitKilled}
	case failOnDead && failed > 0:
		return fmt.Errorf("%s failed for good", count.Of(failed, "event"))
	}
	return nil
}

func (a account) write(to io.Writer, asJSON bool) error {
	if asJSON {
		text, err := json.Marshal(a)
		if err == nil {
			_, err = to.Write(append(text, '\n'))
		}
		return err
	}
	_, err := fmt.Fprintln(to, a)
	return err
}

// String returns the counts as a line of text.
func (a account) String() string {
	s := fmt.Sprintf("handled %d, retried %d, dead-lettered %d, discarded %d", a.Handled, a.Retried, a.DeadLettered, a.Discarded)
	if a.Killed > 0 {
		s += fmt.Sprintf(", killed %d", a.Killed)
	}
	if a.Unconfirmed > 0 {
		s += fmt.Sprintf(", not confirmed %d", a.Unconfirmed)
	}
	if a.LeasesLost > 0 {
		s += fmt.Sprintf(", leases lost %d", a.LeasesLost)
	}
	if a.Abandoned > 0 {
		s += fmt.Sprintf(", left unsettled %d", a.Abandoned)
	}
	if a.Failing > 0 {
		s += fmt.Sprintf(", failing %d, the last %s", a.Failing, strings.ReplaceAll(a.LastError, "\n", " "))
	}
	return s
}
