package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/idle"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/lines"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/quota"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/shell"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A work is what sub does with its events, and when it is over.
//
// Its goroutine waits, from start on, for what ends it.
type work struct {
	stdout, stderr *lines.Writer
	handler        eventbus.Handler
	onReceive      bool         // what is handed out is acknowledged
	quota          *quota.Quota // nil: no end
	idleExit       time.Duration
	patience       time.Duration // for the backend's answers
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
		w.handler = w.run(h.Handle)
	}
	if s.count > 0 {
		w.quota = quota.New(s.count, limiter.Both(s.options.MaxInFlight, 64<<20))
		s.options.Limiter = w.quota
	}
	return w, nil
}

// print is the handler without a command.
func (w *work) print(_ context.Context, d *eventbus.Delivery) error {
	if _, err := w.stdout.Write(ndjson.Append(nil, d)); err != nil {
		return notPrinted
	}
	return nil // even if what another has printed meanwhile was lost
}

// run is the handler with a command. It cannot tell whose output was lost.
func (w *work) run(h eventbus.Handler) eventbus.Handler {
	return func(ctx context.Context, d *eventbus.Delivery) error {
		err := h(ctx, d)
		if w.stdout.Err() != nil {
			return notPrinted
		}
		return err
	}
}

// notPrinted is no fault of the event: it goes to another member.
var notPrinted = eventbus.Snooze(0)

// handle is what the bus calls.
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

// Why sub ends by itself.
var (
	errOutput  = errors.New("standard output")
	errCounted = errors.New("as many as wanted have succeeded")
	errIdle    = errors.New("nothing to do")
)

// start begins to wait for what ends the work, which calls stop.
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

// busy reports whether something waits for the group, as far as the backend
// knows. One that does not answer may have something.
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
	// Of what is held and what is delayed a backend may not know how much there
	// is; that there is some, the oldest tells.
	return stats.Lag > 0 || stats.InFlight > 0 || stats.Delayed > 0 || !stats.Oldest.IsZero()
}

// An account says what has become of the events that were handed out.
type account struct {
	Handled      int64 `json:"handled"`
	Retried      int64 `json:"retried"`
	DeadLettered int64 `json:"dead_lettered"`
	Discarded    int64 `json:"discarded"`
	Unconfirmed  int64 `json:"unconfirmed"` // of these: acknowledgements; what lacks one comes again
	LeasesLost   int64 `json:"leases_lost"`
	Abandoned    int64 `json:"abandoned"`
}

func (w *work) account(c eventbus.Counts) account {
	a := account{
		Handled: w.handled.Load(), Retried: c.Retried, DeadLettered: c.DeadLettered, Discarded: c.Discarded,
		LeasesLost: c.LeasesLost, Abandoned: c.Abandoned,
	}
	if !w.onReceive {
		a.Unconfirmed = max(a.Handled+a.DeadLettered+a.Discarded-c.Acknowledged, 0)
	}
	return a
}

// err is what is open at the end. A lost lease has its reasons, and its event
// has been seen to by others.
func (a account) err() error {
	if open := a.Unconfirmed - a.LeasesLost; open > 0 {
		return fmt.Errorf("%d acknowledgements were not confirmed; these events come again", open)
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

// String is the line for people.
func (a account) String() string {
	s := fmt.Sprintf("handled %d, retried %d, dead-lettered %d, discarded %d", a.Handled, a.Retried, a.DeadLettered, a.Discarded)
	if a.Unconfirmed > 0 {
		s += fmt.Sprintf(", not confirmed %d", a.Unconfirmed)
	}
	if a.LeasesLost > 0 {
		s += fmt.Sprintf(", leases lost %d", a.LeasesLost)
	}
	if a.Abandoned > 0 {
		s += fmt.Sprintf(", left unsettled %d", a.Abandoned)
	}
	return s
}
