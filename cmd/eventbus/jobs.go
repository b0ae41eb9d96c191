package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/worker"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/presence"
	"github.com/seed41896749/eventbus/service"
)

// jobs are the groups of the commands sub and work, which run as one service. Besides a signal, the service ends when
// standard output breaks, when enough events have succeeded, or when there is nothing left to do; watch starts the
// goroutines that wait for these.
type jobs struct {
	stdout, stderr *worker.LineWriter
	all            []*job
	named          bool          // summaries and errors include the names of the jobs
	quota          *worker.Quota // limits how many events succeed; nil: no limit
	idleExit       time.Duration
	drain          time.Duration
	presence       presence.Options // with Every, the process announces itself
	idle           *worker.IdleTimer
	watching       sync.WaitGroup
}

// A job is one group, and the handler of its events.
type job struct {
	*jobs
	name    string // of its registration
	group   service.Group
	handler eventbus.Handler
	command *worker.CommandHandler // runs the command; nil: there is none
	handled atomic.Int64
	sub     *eventbus.Subscription // set when it has started
}

func newJobs(cmd *cobra.Command, idleExit, drain time.Duration) *jobs {
	return &jobs{
		stdout: worker.NewLineWriter(cmd.OutOrStdout()), stderr: worker.NewLineWriter(cmd.ErrOrStderr()),
		idleExit: idleExit, drain: drain, idle: worker.NewIdleTimer(),
	}
}

// add adds a job that runs the command exec for each event, or prints the event if exec is empty.
func (w *jobs) add(name, topic string, o eventbus.SubscribeOptions, exec string) error {
	j := &job{jobs: w, name: name}
	j.group = service.Group{Topic: topic, Options: o, Handler: j.handle, AllowDuplicate: true} // as in a program with this file
	j.handler = j.print
	if exec != "" {
		h, err := worker.NewCommandHandler(exec, w.stdout, w.stderr)
		if err != nil {
			return fmt.Errorf("--exec: %w", err)
		}
		j.handler, j.command = j.run(h.Handle), h
	}
	w.all = append(w.all, j)
	return nil
}

// print is the handler without --exec. It prints the event.
func (j *job) print(_ context.Context, d *eventbus.Delivery) error {
	if _, err := j.stdout.Write(ndjson.Append(nil, d)); err != nil {
		return notPrinted
	}
	return nil // even if stdout has failed since, because this line was written
}

// run returns the handler for --exec, which calls h. After an error of stdout nobody knows which event's output was lost,
// so from then on no event counts as handled.
func (j *job) run(h eventbus.Handler) eventbus.Handler {
	return func(ctx context.Context, d *eventbus.Delivery) error {
		err := h(ctx, d)
		if j.stdout.Err() != nil {
			return notPrinted
		}
		return err
	}
}

// notPrinted gives an event to another member without counting a failure.
var notPrinted = eventbus.Snooze(0)

// handle is the handler that the bus calls. It calls j.handler and counts successes.
func (j *job) handle(ctx context.Context, d *eventbus.Delivery) error {
	j.idle.Begin()
	defer j.idle.End()
	if err := j.handler(ctx, d); err != nil {
		return err
	}
	j.handled.Add(1)
	if j.quota != nil {
		j.quota.Succeeded()
	}
	return nil
}

// The reasons why jobs end by themselves.
var (
	errOutput  = errors.New("standard output")
	errCounted = errors.New("as many as wanted have succeeded")
	errIdle    = errors.New("nothing to do")
)

// serve runs the jobs on bus until the context of cmd ends, a signal arrives, or the jobs end by themselves; cause says
// which. It then shuts the bus down.
func (w *jobs) serve(cmd *cobra.Command, c *connection, bus *eventbus.Bus) (o service.Outcome, cause, err error) {
	ctx, stop := context.WithCancelCause(cmd.Context())
	defer stop(nil)
	var svc *service.Service
	servers, err := announcers(ctx, bus, w.presence)
	if err == nil {
		svc, err = service.New(bus, service.Options{Servers: servers, Signals: []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}})
	}
	if err == nil {
		err = c.bound(ctx, func(ctx context.Context) error { return w.withoutName(w.begin(ctx, svc)) })
	}
	if err != nil {
		c.close(ctx, bus)
		return o, nil, err
	}
	w.watch(ctx, stop, c, bus)
	o = svc.Run(ctx, w.drain)
	cause = context.Cause(ctx)
	stop(nil)
	w.watching.Wait()
	return o, cause, nil
}

// begin registers and starts all jobs.
func (w *jobs) begin(ctx context.Context, svc *service.Service) error {
	for _, j := range w.all {
		if err := svc.Register(ctx, j.name, j.group); err != nil {
			return err
		}
	}
	if err := svc.Start(ctx); err != nil {
		return err
	}
	for _, j := range w.all {
		j.sub = svc.Subscription(j.name)
	}
	return nil
}

// withoutName removes the name of a job from an error of the service, unless the user knows it from a file.
func (w *jobs) withoutName(err error) error {
	if e, ok := errors.AsType[*eventbus.Error](err); ok && !w.named {
		return e
	}
	return err
}

// watch starts the goroutines that wait for a reason to end and call stop with it.
func (w *jobs) watch(ctx context.Context, stop context.CancelCauseFunc, c *connection, bus *eventbus.Bus) {
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
			if w.idle.Wait(ctx, w.idleExit, func(ctx context.Context) bool { return w.busy(ctx, c, bus) }) == nil {
				stop(errIdle)
			}
		})
	}
}

// busy reports whether events may be waiting for one of the groups. If the backend does not answer, it reports true.
func (w *jobs) busy(ctx context.Context, c *connection, bus *eventbus.Bus) bool {
	for _, j := range w.all {
		if state, _ := j.sub.State(); state != observer.Running {
			return true
		}
		for _, topic := range j.sub.Topics() {
			if waits(ctx, c, bus, topic, j.sub.Group()) {
				return true
			}
		}
	}
	return false
}

// waits reports whether events of a topic may be waiting for a group.
func waits(ctx context.Context, c *connection, bus *eventbus.Bus, topic, group string) bool {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	stats, err := backend.StatsOf(ctx, bus.Backend(), topic, group)
	if err != nil {
		return ignoreUnsupported(err) != nil && !errors.Is(err, backend.ErrGone)
	}
	// A backend may not know a number. Oldest is set if any event is unacknowledged.
	return stats.Lag > 0 || stats.Unacked > 0 || !stats.Oldest.IsZero()
}

// announceFlag adds --announce to a command that handles events.
func announceFlag(cmd *cobra.Command, o *presence.Options) {
	cmd.Flags().DurationVar(&o.Every, "announce", 0, "send a heartbeat this often, for eventbus processes (default: never)")
}

// announcers returns the server that announces the process of bus, or none without --announce.
func announcers(ctx context.Context, bus *eventbus.Bus, o presence.Options) ([]eventbus.Server, error) {
	if o.Every == 0 {
		return nil, nil
	}
	a, err := presence.New(ctx, bus, o)
	if f, ok := errors.AsType[*eventbus.FieldError](err); ok {
		return nil, fmt.Errorf("--announce %s", f.Reason)
	}
	if err != nil {
		return nil, fmt.Errorf("--announce: %w", err)
	}
	return []eventbus.Server{a}, nil
}
