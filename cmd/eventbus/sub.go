package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/worker"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/presence"
)

const subHelp = `Join a group of a topic, and print its events or run a command for each.

Without --exec each event is printed as one line of JSON, in the form that pub reads,
with "topic", "group", "attempt" and "position", and is acknowledged once its line is
written. With --exec, sh -c runs the command for each event. The command gets the line
on standard input and EVENTBUS_ID, EVENTBUS_TOPIC, EVENTBUS_TYPE, EVENTBUS_KEY,
EVENTBUS_ATTEMPT, EVENTBUS_POSITION and EVENTBUS_GROUP in its environment. Its exit
code decides what happens to the event:

  0      it is acknowledged
  65     it goes to the dead-letter topic now
  other  it is redelivered after a delay, until --attempts are used up (75 is the
         conventional code for that)

The output of commands is passed on line by line; lines of different commands are
never mixed. The end of what a command prints on standard error becomes the text of
its error, which a dead letter keeps. Each command runs in a process group of its own.
At --timeout, or when another member takes over its event, the group gets SIGTERM, and
SIGKILL half a second later. Processes that a command leaves behind and that still
hold its output are killed too.

sub ends after an interrupt, SIGTERM or SIGHUP; after --count events have succeeded;
or after --idle-exit, when for that long no event was delivered, none was being
handled, and the backend reports none as new, held by any member, or delayed for
another attempt. What the backend cannot report is not counted; if it can report
nothing, only the time counts. In each case sub takes no new events, waits up to
--drain for running commands, gives back the events that it has not begun, and prints
a summary on standard error. A second signal, at least a second after the first, cuts
the drain short. The exit code is the highest that applies:

  0  a clean end
  1  an error: acknowledgements were not confirmed, or standard output could not be
     written (an event that was not printed is not acknowledged). With
     --fail-on-dead-letter, it is also 1 if an event went to the dead-letter topic or was
     discarded; that is the default if --count or --idle-exit ended sub
  2  a command was killed: by a signal, at --timeout, or when its lease was lost
  3  --drain ran out, and commands were killed or events left`

var (
	ackModes = choicesOf(eventbus.AckOnSuccess, eventbus.AckOnReceive)
	orders   = choicesOf(eventbus.OrderByKey, eventbus.Unordered, eventbus.OrderTotal)
)

// A sub is the command "eventbus sub", with its flags.
type sub struct {
	connection

	options             eventbus.SubscribeOptions
	ack, order, start   string
	exec                string
	count               int
	idleExit, drainTime time.Duration
	metrics             string
	failOnDead          bool
	presence            presence.Options
}

func newSub(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	s := &sub{connection: connection{drivers: drivers}}
	cmd := &cobra.Command{
		Use:   "sub TOPIC --group GROUP",
		Short: "Print the events of a group, or run a command for each",
		Long:  subHelp,
		Example: "  eventbus sub orders --group audit\n" +
			"  eventbus sub orders --group billing --exec ./charge --concurrency 8 --idle-exit 5s",
		Args: topicArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.run(cmd, args[0], *asJSON); err != nil {
				return fmt.Errorf("sub: %w", err)
			}
			return nil
		},
	}
	s.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.options.Group, "group", "", "`group` to join; its members share the events")
	f.StringVar(&s.exec, "exec", "", "shell `command` to run for each event")
	f.IntVar(&s.options.Concurrency, "concurrency", 1, "how many events to handle at once")
	f.StringVar(&s.order, "order", "by-key", "which events wait for each other: by-key, none or total")
	f.StringVar(&s.ack, "ack", "on-success", "when to acknowledge: on-success, or on-receive (at most once, nothing is redelivered)")
	f.StringVar(&s.start, "start", "earliest", "where a new group begins: "+startUsage)
	f.IntVar(&s.count, "count", 0, "end after this many successes (default: never)")
	f.DurationVar(&s.idleExit, "idle-exit", 0, "end after this long without anything to do (default: never)")
	f.DurationVar(&s.options.Timeout, "timeout", time.Minute, "how long one event may take; negative: forever")
	f.DurationVar(&s.options.Lease, "lease", 30*time.Second, "how long the backend waits for a silent member before it redelivers")
	f.IntVar(&s.options.Retry.MaxAttempts, "attempts", 12, "how often an event may fail; -1: no limit")
	f.DurationVar(&s.options.Retry.Initial, "backoff", time.Second, "delay before the second attempt; doubles with each further one")
	f.DurationVar(&s.options.Retry.Max, "max-backoff", 10*time.Minute, "the longest of these delays")
	f.StringVar(&s.options.DeadLetter, "dead-letter", "", "`topic` for events that fail for good, or discard to drop them (default: TOPIC.dlq)")
	f.DurationVar(&s.drainTime, "drain", 25*time.Second, "drain timeout: how long to wait for running commands at the end")
	f.BoolVar(&s.failOnDead, "fail-on-dead-letter", false, "exit with 1 if an event failed for good (default: if --count or --idle-exit ended sub)")
	metricsFlag(cmd, &s.metrics)
	announceFlag(cmd, &s.presence)
	_ = cmd.MarkFlagRequired("group") // the flag exists
	complete(cmd, "ack", ackModes)
	complete(cmd, "order", orders)
	complete(cmd, "start", []choice[bool]{{"earliest", true}, {"latest", true}})
	return cmd
}

// parse checks the flags, and sets the options whose flags take words.
func (s *sub) parse(cmd *cobra.Command) (err error) {
	o := &s.options
	if err = filled(cmd, "exec", "start"); err != nil {
		return err
	}
	if o.Ack, err = choose("ack", s.ack, ackModes); err != nil {
		return err
	}
	if o.Order, err = choose("order", s.order, orders); err != nil {
		return err
	}
	if o.Start, err = parseStart("start", s.start); err != nil {
		return err
	}
	if o.DeadLetter == "discard" {
		o.DeadLetter = eventbus.DiscardDeadLetters
	}
	switch { // checked here, because the zero value of an option means its default
	case o.Concurrency < 1:
		return errors.New("--concurrency must be positive")
	case o.Timeout == 0:
		return errors.New("--timeout must not be 0; negative means forever")
	case o.Lease <= 0:
		return errors.New("--lease must be positive")
	case o.Retry.MaxAttempts == 0 || o.Retry.MaxAttempts < -1:
		return errors.New("--attempts must be positive, or -1 for no limit")
	case o.Retry.Initial <= 0:
		return errors.New("--backoff must be positive")
	case o.Retry.Max < o.Retry.Initial && cmd.Flags().Changed("max-backoff"):
		return errors.New("--max-backoff is less than --backoff")
	case s.count < 0:
		return errors.New("--count is negative")
	case s.idleExit < 0:
		return errors.New("--idle-exit is negative")
	case s.drainTime <= 0:
		return errors.New("--drain must be positive")
	}
	o.MaxInFlight = max(1024, o.Concurrency)
	o.Retry.Max = max(o.Retry.Max, o.Retry.Initial)
	return nil
}

// ofFlag rewrites an option's error to name its flag.
func ofFlag(err error) error {
	f, ok := errors.AsType[*eventbus.FieldError](err)
	if !ok {
		return err
	}
	for field, flag := range map[string]string{
		"SubscribeOptions.Group":      "--group",
		"SubscribeOptions.DeadLetter": "--dead-letter",
		"SubscribeOptions.Start":      "--start",
		"SubscribeOptions.Lease":      "--lease",
		"SubscribeOptions.Timeout":    "--timeout",
	} {
		if f.Field == field {
			return &eventbus.FieldError{Field: flag, Reason: f.Reason, Err: f.Err}
		}
	}
	if f.Field == "SubscribeOptions.Concurrency" {
		return fmt.Errorf("--concurrency %s", f.Reason)
	}
	return err
}

// failOnDeadLetter reports whether an event that failed for good is an error. The flag decides; without it, only a command
// that ended by itself fails.
func failOnDeadLetter(cmd *cobra.Command, flag bool) bool {
	if cmd.Flags().Changed("fail-on-dead-letter") {
		return flag
	}
	return cmd.Context().Err() == nil
}

func (s *sub) run(cmd *cobra.Command, topic string, asJSON bool) error {
	if err := s.parse(cmd); err != nil {
		return err
	}
	if _, err := s.options.Effective(topic); err != nil {
		return ofFlag(err)
	}
	w := newJobs(cmd, s.idleExit, s.drainTime)
	w.presence = s.presence
	w.presence.Service = "eventbus"
	if s.count > 0 {
		w.quota = worker.NewQuota(s.count, limiter.Both(s.options.MaxInFlight, 64<<20))
		s.options.Limiter = w.quota
	}
	if err := w.add(topic, topic, s.options, s.exec); err != nil {
		return err
	}
	o := eventbus.Options{Service: "eventbus", Observer: logProblems(w.stderr)}
	watch, closeMetrics, err := serveMetrics(cmd.Context(), s.metrics, w.stderr, &o)
	if err != nil {
		return err
	}
	defer closeMetrics()
	bus, err := s.open(cmd.Context(), o)
	if err != nil {
		return err
	}
	if err := watch(bus); err != nil {
		s.close(cmd.Context(), bus)
		return err
	}
	outcome, cause, err := w.serve(cmd, &s.connection, bus)
	if err != nil {
		return ofFlag(err)
	}
	a := w.all[0].summary()
	err = conclude(outcome, []jobSummary{a}, cause, failOnDeadLetter(cmd, s.failOnDead))
	a.Exit = exitCode(err)
	return cmp.Or(err, a.write(w.stderr, asJSON))
}
