package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/config"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/presence"
)

const workHelp = `Run a command for each event of the subscriptions in a configuration file, as one
service with several groups.

Each command gets the line and the environment that "eventbus sub --help" describes,
and its exit codes mean the same; EVENTBUS_TOPIC and EVENTBUS_GROUP say which
subscription the event belongs to. The topics and groups, how many commands run at
once, their timeouts and retries come from the file. The groups are created before the
first command runs.

It ends like sub and prints a summary of each subscription on standard error. The
drain timeout is drain_timeout of the file unless you give --drain. The exit code is
that of sub, over all subscriptions.`

// A work is the command "eventbus work", with its flags.
type work struct {
	connection

	file, exec, metrics string
	only                []string
	idleExit, drain     time.Duration
	failOnDead          bool
	presence            presence.Options
}

func newWork(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	w := &work{connection: connection{drivers: drivers}}
	cmd := &cobra.Command{
		Use:   "work --config FILE --exec COMMAND",
		Short: "Run a command for each event of the groups in a configuration file",
		Long:  workHelp,
		Example: "  eventbus work --config eventbus.yaml --exec ./handle\n" +
			"  eventbus work --config eventbus.yaml --only billing --exec ./charge",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.run(cmd, *asJSON); err != nil {
				return fmt.Errorf("work: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.file, "config", "", "`file` with the bus and its subscriptions")
	f.StringVar(&w.exec, "exec", "", "shell `command` to run for each event")
	f.StringSliceVar(&w.only, "only", nil, "`names` of the subscriptions to run (default: all)")
	f.DurationVar(&w.idleExit, "idle-exit", 0, "end after this long without anything to do (default: never)")
	f.DurationVar(&w.drain, "drain", 0, "drain timeout: how long to wait for running commands at the end (default: drain_timeout of the file)")
	f.BoolVar(&w.failOnDead, "fail-on-dead-letter", false, "exit with 1 if an event failed for good (default: if --idle-exit ended work)")
	f.DurationVar(&w.timeout, "connect-timeout", 5*time.Second, "how long to wait for an answer of the backend")
	metricsFlag(cmd, &w.metrics)
	announceFlag(cmd, &w.presence)
	for _, flag := range []string{"config", "exec"} {
		_ = cmd.MarkFlagRequired(flag) // the flag exists
	}
	return cmd
}

// parse checks the flags.
func (w *work) parse(cmd *cobra.Command) error {
	switch {
	case w.idleExit < 0:
		return errors.New("--idle-exit is negative")
	case w.drain <= 0 && cmd.Flags().Changed("drain"):
		return errors.New("--drain must be positive")
	case w.timeout <= 0:
		return errors.New("--connect-timeout must be positive")
	}
	return filled(cmd, "config", "exec")
}

func (w *work) run(cmd *cobra.Command, asJSON bool) error {
	if err := w.parse(cmd); err != nil {
		return err
	}
	cfg, err := config.Load(w.file)
	if err == nil {
		err = cfg.Check(cmd.Context(), w.drivers...)
	}
	if err != nil {
		return badFile(cmd, err, nil)
	}
	names, err := w.names(cfg)
	if err != nil {
		return err
	}
	j := newJobs(cmd, w.idleExit, cmp.Or(w.drain, cfg.Options().DrainTimeout))
	j.named = true
	j.presence = w.presence
	j.presence.Service, j.presence.Instance = cfg.Options().Service, cfg.Options().Instance
	for _, name := range names {
		if err := w.add(j, cfg, name); err != nil {
			return err
		}
	}
	extra := eventbus.Options{Observer: logProblems(j.stderr)}
	watch, closeMetrics, err := serveMetrics(cmd.Context(), w.metrics, j.stderr, &extra)
	if err != nil {
		return err
	}
	defer closeMetrics()
	bus, err := w.open(cmd.Context(), cfg, extra)
	if err != nil {
		return err
	}
	if err := watch(bus); err != nil {
		w.close(cmd.Context(), bus)
		return err
	}
	outcome, cause, err := j.serve(cmd, &w.connection, bus)
	if err != nil {
		return err
	}
	summaries := make([]jobSummary, len(j.all))
	for i, one := range j.all {
		summaries[i] = one.summary()
	}
	err = conclude(outcome, summaries, cause, failOnDeadLetter(cmd, w.failOnDead))
	for _, a := range summaries {
		a.Exit = exitCode(err)
		err = cmp.Or(err, a.write(j.stderr, asJSON))
	}
	return err
}

// names returns the names of the subscriptions to run.
func (w *work) names(cfg *config.Config) ([]string, error) {
	all := cfg.Subscriptions()
	for i, name := range w.only {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("--only: the file has no subscription %q%s", name, nearest.Hint("%q", name, all))
		}
		if slices.Contains(w.only[:i], name) {
			return nil, fmt.Errorf("--only has %q twice", name)
		}
	}
	if len(w.only) > 0 {
		return w.only, nil
	}
	if len(all) == 0 {
		return nil, errors.New("the file has no subscriptions")
	}
	return all, nil
}

// add adds the subscription with this name.
func (w *work) add(j *jobs, cfg *config.Config, name string) error {
	if cfg.Batch(name) != (eventbus.Batch{}) {
		return fmt.Errorf("bus.subscriptions.%s.batch is set, but a command handles single events", name)
	}
	topic, o, err := cfg.Subscription(name)
	if err != nil {
		return err
	}
	return j.add(name, topic, o, w.exec)
}

// open opens the bus of the file, with the observer and middleware of extra.
func (w *work) open(ctx context.Context, cfg *config.Config, extra eventbus.Options) (bus *eventbus.Bus, err error) {
	err = w.bound(ctx, func(ctx context.Context) error {
		bus, err = cfg.Open(ctx, func(o *eventbus.Options) {
			o.Observer, o.Middleware, o.PublishMiddleware = extra.Observer, extra.Middleware, extra.PublishMiddleware
		}, w.drivers...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := w.ping(ctx, bus); err != nil {
		w.close(ctx, bus)
		return nil, err
	}
	return bus, nil
}
