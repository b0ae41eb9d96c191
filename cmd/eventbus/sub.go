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

const subHelp = `Be a member of a group of a topic: print its events, or run a command for each.

Without --exec each event is printed as one line of JSON, in the form that pub reads,
with "topic", "group", "attempt" and "position"; it is acknowledged when its line is
written. With --exec, sh -c runs the command for each event, with that line on its
standard input, and EVENTBUS_ID, EVENTBUS_TOPIC, EVENTBUS_TYPE, EVENTBUS_KEY,
EVENTBUS_ATTEMPT, EVENTBUS_POSITION and EVENTBUS_GROUP in its environment. Its exit
code says what follows:

  0      the event is acknowledged
  65     it goes to the dead-letter topic now
  other  it comes again after a while, until --attempts are used up (75 is the
         usual code for that)

What commands print is passed on line by line, lines of several never mixed. The end
of what a command prints on standard error is the text of its error, which a dead
letter keeps. A command runs in a process group of its own; at --timeout, or when its
event is lost to another member, the group gets SIGTERM, and SIGKILL half a second
later. What a command leaves running that holds its output is killed too.

It ends after an interrupt, SIGTERM or SIGHUP; after --count events that
have succeeded; or after --idle-exit: when for that long no event was handed out and
none was being handled, and the backend says that none waits for this group: that
none is new, held by any member, or delayed for another attempt. What the backend
cannot tell does not count; where it can tell nothing, only the time does. In each
case it takes nothing new, waits for what runs, at most for --drain, gives back what
it has not begun, and prints an account on standard error. A second signal, a second
or more after the first, is the end of --drain. The exit code is the greatest of these

  0  clean
  1  an error: acknowledgements were not confirmed, or standard output cannot be
     written (an event that was not printed is not acknowledged); also if an event went
     to the dead-letter topic or was discarded, with --fail-on-dead-letter, which is
     the default if --count or --idle-exit has ended it
  2  a command was killed: by a signal, at --timeout, or with its lost lease
  3  the time of --drain was over, and commands were killed or events left`

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
	f.StringVar(&s.options.Group, "group", "", "`group` whose events are shared among its members")
	f.StringVar(&s.exec, "exec", "", "`command` of the shell to run for each event")
	f.IntVar(&s.options.Concurrency, "concurrency", 1, "how many events are handled at once")
	f.StringVar(&s.order, "order", "by-key", "which events wait for each other: by-key, none, total")
	f.StringVar(&s.ack, "ack", "on-success", "when to acknowledge: on-success, or on-receive: at most once, nothing comes again")
	f.StringVar(&s.start, "start", "earliest", "where a new group begins: "+startUsage)
	f.IntVar(&s.count, "count", 0, "end after so many events have succeeded (default: no end)")
	f.DurationVar(&s.idleExit, "idle-exit", 0, "end after so long without anything to do (default: no end)")
	f.DurationVar(&s.options.Timeout, "timeout", time.Minute, "how long one event may take; negative: no end")
	f.DurationVar(&s.options.Lease, "lease", 30*time.Second, "how long the backend waits for a member that has gone silent")
	f.IntVar(&s.options.Retry.MaxAttempts, "attempts", 12, "how often an event may fail; -1: no end")
	f.DurationVar(&s.options.Retry.Initial, "backoff", time.Second, "wait before the second attempt; each further one doubles it")
	f.DurationVar(&s.options.Retry.Max, "max-backoff", 10*time.Minute, "the longest of these waits")
	f.StringVar(&s.options.DeadLetter, "dead-letter", "", "`topic` for events that fail for good, or discard (default: TOPIC.dlq)")
	f.DurationVar(&s.drainTime, "drain", 25*time.Second, "how long to wait, at the end, for running commands")
	f.BoolVar(&s.failOnDead, "fail-on-dead-letter", false, "exit code 1 if an event failed for good (default: if --count or --idle-exit ended it)")
	metricsFlag(cmd, &s.metrics)
	announceFlag(cmd, &s.presence)
	_ = cmd.MarkFlagRequired("group") // the flag exists
	complete(cmd, "ack", ackModes)
	complete(cmd, "order", orders)
	complete(cmd, "start", []choice[bool]{{"earliest", true}, {"latest", true}})
	return cmd
}

// parse sets the options whose flags have words as values, and checks the flags.
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
	switch { // checked here, because a zero option would mean its default
	case o.Concurrency < 1:
		return errors.New("--concurrency must be positive")
	case o.Timeout == 0:
		return errors.New("--timeout must not be 0; negative: no end")
	case o.Lease <= 0:
		return errors.New("--lease must be positive")
	case o.Retry.MaxAttempts == 0 || o.Retry.MaxAttempts < -1:
		return errors.New("--attempts must be positive, or -1: no end")
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

// failOnDeadLetter reports whether an event that failed for good is an error: if the flag says
// so, and otherwise if the command has ended by itself.
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
