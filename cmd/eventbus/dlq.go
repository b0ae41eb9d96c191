package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/bytesize"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/internal/operator"
)

const dlqHelp = `Look at dead letters, and settle them: send their events again, or discard them.

TOPIC is the dead-letter topic, usually a topic's name with .dlq at the end. Flags select
dead letters by the group that failed, the reason, the error class and the event.`

// A dlq holds the flags that the commands on dead letters share.
type dlq struct {
	connection
	asJSON *bool

	filter deadletter.Filter
	older  time.Duration
	limit  int
}

func newDLQ(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "List, redrive and discard dead letters", Long: dlqHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	base := func() *dlq { return &dlq{connection: connection{drivers: drivers}, asJSON: asJSON} }
	cmd.AddCommand(newDLQList(base()), newDLQShow(base()), newDLQExport(base()), newDLQRedrive(base()), newDLQDiscard(base()), newDLQPurge(base()))
	return cmd
}

// reasons are the reasons that a dead letter can have.
var reasons = []string{
	eventbus.ReasonPermanent, eventbus.ReasonExhausted, eventbus.ReasonKeyFailed, eventbus.ReasonUnreadable,
	eventbus.ReasonNoVerdict, eventbus.ReasonExpired, eventbus.ReasonTooLarge, eventbus.ReasonOnReceive, eventbus.ReasonOperator,
}

// command adds the shared flags to a command that calls do with the letters of a topic.
func (q *dlq) command(cmd *cobra.Command, do func(ctx context.Context, cmd *cobra.Command, t *deadletter.Topic) error) *cobra.Command {
	cmd.Args = topicArgs(1, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := q.run(cmd, args[0], do); err != nil {
			return fmt.Errorf("dlq %s: %w", cmd.Name(), err)
		}
		return nil
	}
	q.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&q.filter.Group, "group", "", "only dead letters of the `group` that failed")
	f.StringVar(&q.filter.Topic, "of", "", "only dead letters of events of this `topic`")
	f.StringVar(&q.filter.Reason, "reason", "", "only dead letters with this `reason`, such as exhausted")
	f.StringVar(&q.filter.ErrorClass, "error-class", "", "only dead letters with this error `class`")
	f.StringVar(&q.filter.Type, "type", "", "only dead letters of events of this `type`")
	f.StringVar(&q.filter.Key, "key", "", "only dead letters of events with this `key`")
	f.StringVar(&q.filter.ID, "id", "", "only dead letters of the event with this `id`")
	f.DurationVar(&q.older, "older-than", 0, "only dead letters whose last attempt is at least this long ago")
	return cmd
}

// prepare checks the shared flags, and opens the backend.
func (q *dlq) prepare(cmd *cobra.Command) (*eventbus.Bus, error) {
	if q.older < 0 || q.limit < 0 {
		return nil, errors.New("--older-than and --limit must not be negative")
	}
	if err := filled(cmd, "group", "of", "reason", "error-class", "type", "key", "id"); err != nil {
		return nil, err
	}
	if r := q.filter.Reason; r != "" && !slices.Contains(reasons, r) {
		return nil, fmt.Errorf("--reason %q is unknown%s", r, cmp.Or(nearest.Hint("%s", r, reasons), "; known: "+strings.Join(reasons, ", ")+"; --error-class selects by error class"))
	}
	if q.older > 0 {
		q.filter.Before = time.Now().Add(-q.older)
	}
	return q.open(cmd.Context(), eventbus.Options{Service: "eventbus", Observer: logProblems(cmd.ErrOrStderr())})
}

func (q *dlq) run(cmd *cobra.Command, topic string, do func(context.Context, *cobra.Command, *deadletter.Topic) error) error {
	ctx := cmd.Context()
	bus, err := q.prepare(cmd)
	if err != nil {
		return err
	}
	defer q.close(ctx, bus)
	if err := operator.RequireTopics(ctx, bus.Backend(), topic); err != nil {
		return err
	}
	if err := requireLetters(ctx, bus.Backend(), topic); err != nil {
		return err
	}
	t, err := deadletter.Open(bus.Backend(), topic)
	if err != nil {
		return err
	}
	if q.filter.Group != "" {
		if err := requireGroup(ctx, bus.Backend(), t, q.filter.Group); err != nil {
			return err
		}
	}
	return do(ctx, cmd, t)
}

// narrow reports whether at least one flag narrows the selection.
func (q *dlq) narrow() bool {
	f := q.filter
	return f.Group+f.Topic+f.Reason+f.ErrorClass+f.Type+f.Key+f.ID != "" || q.older > 0
}

func newDLQShow(q *dlq) *cobra.Command {
	cmd := &cobra.Command{Use: "show TOPIC", Short: "Show dead letters, with the error and the event", Example: "  eventbus dlq show orders.dlq --group billing --limit 10"}
	cmd.Flags().IntVar(&q.limit, "limit", 20, "show at most this many; 0: all")
	return q.command(cmd, func(ctx context.Context, cmd *cobra.Command, t *deadletter.Topic) error {
		return q.each(ctx, cmd, t, func(l *deadletter.Letter) error {
			if *q.asJSON {
				return q.writeLine(cmd, l)
			}
			w := printable{cmd.OutOrStdout()}
			fmt.Fprintf(w, "%s  %s/%s  %s after %s, %s ago, redriven %s\n", l.ID, l.Topic, l.Group, l.Reason,
				plural.Of(l.Attempts, "attempt"), age(l.LastAttempt, time.Now()), plural.Of(l.Redriven, "time"))
			fmt.Fprintf(w, "  error  %s (%s)\n  event  type %s, key %s, %d bytes\n", l.Error, orDash(l.ErrorClass), orDash(l.Event.Type), orDash(l.Event.Key), len(l.Event.Payload))
			if l.Stack != "" {
				fmt.Fprintf(w, "  stack  %s\n", strings.ReplaceAll(l.Stack, " | ", "\n         "))
			}
			_, err := fmt.Fprintf(w, "  data   %s\n", short(string(l.Event.Payload)))
			return err
		})
	})
}

func newDLQExport(q *dlq) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export TOPIC", Short: "Write dead letters as lines of JSON", Example: "  eventbus dlq export orders.dlq >letters.ndjson",
		Long: "Write dead letters as lines of JSON. A line is the event as it was published, without\nits TTL, in the form that pub reads, with \"dead\", which says why it failed.",
	}
	cmd.Flags().IntVar(&q.limit, "limit", 0, "write at most this many (default: all)")
	return q.command(cmd, func(ctx context.Context, cmd *cobra.Command, t *deadletter.Topic) error {
		return q.each(ctx, cmd, t, func(l *deadletter.Letter) error { return q.writeLine(cmd, l) })
	})
}

const noMatch = "no dead letter matches"

// each calls do for the dead letters that the flags select. If there are none, it says so on standard error.
func (q *dlq) each(ctx context.Context, cmd *cobra.Command, t *deadletter.Topic, do func(*deadletter.Letter) error) error {
	n := 0
	for l, err := range t.All(ctx, q.filter) {
		if err == nil {
			err = do(l)
		}
		if err != nil {
			return err
		}
		if n++; n == q.limit {
			break
		}
	}
	if n == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), noMatch)
	}
	return nil
}

func (q *dlq) writeLine(cmd *cobra.Command, l *deadletter.Letter) error {
	_, err := cmd.OutOrStdout().Write(ndjson.AppendLetter(nil, l))
	return err
}

const redriveHelp = `Send the events of dead letters again, each to the group that could not handle it and
to no other. An event keeps its id and headers and starts with fresh attempts. Its dead
letter is removed once the event is stored.

You can interrupt or kill it at any moment and run it again: no event is lost, and none
is stored twice while the backend remembers its id. Without flags it redrives all dead
letters, except for events that were already redriven --max-redrives times.`

func newDLQRedrive(q *dlq) *cobra.Command {
	var r deadletter.Redrive
	var data string
	cmd := &cobra.Command{
		Use: "redrive TOPIC", Short: "Send events again, to the group that failed", Long: redriveHelp,
		Example: "  eventbus dlq redrive orders.dlq --group billing --error-class timeout --rate 50\n  eventbus dlq redrive orders.dlq --id e-1 --data fixed.json",
	}
	f := cmd.Flags()
	f.IntVar(&q.limit, "limit", 0, "redrive at most this many (default: all)")
	f.Float64Var(&r.Rate, "rate", 0, "redrive this many per second (default: no limit)")
	f.IntVar(&r.MaxRedrives, "max-redrives", 3, "leave events that were redriven this often; -1: no limit")
	f.BoolVar(&r.DryRun, "dry-run", false, "count, but change nothing")
	f.StringVar(&data, "data", "", "replace the payload of the --id event by the content of this `file`")
	return q.command(cmd, func(ctx context.Context, cmd *cobra.Command, t *deadletter.Topic) error {
		switch {
		case r.MaxRedrives == 0:
			return errors.New("--max-redrives is 0; -1 means no limit")
		case !(r.Rate >= 0): // negative or not a number
			return errors.New("--rate must not be negative")
		}
		if cmd.Flags().Changed("data") {
			if q.filter.ID == "" {
				return errors.New("--data needs --id")
			}
			payload, err := os.ReadFile(data)
			if err != nil {
				return err
			}
			r.Edit = func(m *backend.Message, _ *deadletter.Letter) error {
				m.Payload = payload
				return nil
			}
		}
		r.Filter, r.Limit = q.filter, q.limit
		report, err := t.Redrive(ctx, r)
		return errors.Join(err, q.printReport(cmd, r, report))
	})
}

// printReport prints the report of a redrive.
func (q *dlq) printReport(cmd *cobra.Command, r deadletter.Redrive, report deadletter.Report) error {
	if *q.asJSON {
		return errors.Join(report.Err, writeJSON(cmd.OutOrStdout(), report))
	}
	if report == (deadletter.Report{}) {
		fmt.Fprintln(cmd.ErrOrStderr(), noMatch)
	}
	done := "redriven"
	if r.DryRun {
		done = "would be redriven:"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %d, left: redriven too often %d, without their group %d, refused %d\n", done, report.Redriven, report.Looping, report.NoGroup, report.Refused)
	return report.Err
}

// count prints how many dead letters a command has removed; done is its word for that.
func (q *dlq) count(cmd *cobra.Command, done string, n int) error {
	if *q.asJSON {
		return writeJSON(cmd.OutOrStdout(), map[string]int{done: n})
	}
	if n == 0 && q.narrow() {
		fmt.Fprintln(cmd.ErrOrStderr(), noMatch)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %d\n", done, n)
	return err
}

func newDLQDiscard(q *dlq) *cobra.Command {
	var all bool
	cmd := &cobra.Command{Use: "discard TOPIC", Short: "Remove dead letters permanently", Example: "  eventbus dlq discard orders.dlq --reason unreadable"}
	cmd.Flags().BoolVar(&all, "all", false, "discard every dead letter")
	return q.command(cmd, func(ctx context.Context, cmd *cobra.Command, t *deadletter.Topic) error {
		if !all && !q.narrow() {
			return errors.New("select dead letters with a flag, or give --all")
		}
		n, err := t.Discard(ctx, q.filter)
		return errors.Join(err, q.count(cmd, "discarded", n))
	})
}

const purgeHelp = `Remove the dead letters that are outside one of the bounds. Those that the other
flags do not select stay, and do not count towards the bounds.`

func newDLQPurge(q *dlq) *cobra.Command {
	var b deadletter.Bounds
	cmd := &cobra.Command{
		Use: "purge TOPIC", Short: "Bound a dead-letter topic by removing its oldest dead letters", Long: purgeHelp,
		Example: "  eventbus dlq purge orders.dlq --keep 10000 --keep-bytes 1GiB --older-than 720h",
	}
	cmd.Flags().IntVar(&b.Letters, "keep", 0, "keep at most this many dead letters")
	cmd.Flags().Func("keep-bytes", "keep dead letters of at most this total `size`", func(s string) (err error) {
		b.Bytes, err = bytesize.Parse(s)
		return err
	})
	cmd = q.command(cmd, func(ctx context.Context, cmd *cobra.Command, t *deadletter.Topic) error {
		b.Age, q.filter.Before = q.older, time.Time{}
		switch {
		case cmd.Flags().Changed("keep") && b.Letters < 1:
			return errors.New("--keep is less than 1; discard --all removes every dead letter")
		case cmd.Flags().Changed("keep-bytes") && b.Bytes < 1:
			return errors.New("--keep-bytes is less than 1B; discard --all removes every dead letter")
		case b == (deadletter.Bounds{}):
			return errors.New("give --keep, --keep-bytes or --older-than")
		}
		n, err := t.Trim(ctx, q.filter, b)
		return errors.Join(err, q.count(cmd, "purged", n))
	})
	cmd.Flags().Lookup("older-than").Usage = "remove dead letters whose last attempt is at least this long ago"
	return cmd
}

func newDLQList(q *dlq) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [TOPIC]", Short: "Count dead letters by class", Example: "  eventbus dlq ls orders.dlq",
		Long: "Count dead letters by class. Without TOPIC it covers all dead-letter topics.",
	}
	q.command(cmd, func(ctx context.Context, cmd *cobra.Command, t *deadletter.Topic) error {
		classes, err := t.Classes(ctx, q.filter)
		if err != nil {
			return err
		}
		return q.writeClasses(cmd, classes)
	})
	one := cmd.RunE
	cmd.Args = topicArgs(0, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return one(cmd, args)
		}
		if err := q.listAll(cmd); err != nil {
			return fmt.Errorf("dlq ls: %w", err)
		}
		return nil
	}
	return cmd
}

// listAll counts the dead letters of all dead-letter topics.
func (q *dlq) listAll(cmd *cobra.Command) error {
	ctx := cmd.Context()
	bus, err := q.prepare(cmd)
	if err != nil {
		return err
	}
	defer q.close(ctx, bus)
	all, err := operator.Topics(ctx, bus.Backend())
	if err == nil && all == nil {
		err = errors.New("give the dead-letter topic: the backend does not list its topics")
	}
	var classes []deadletter.Class
	for _, topic := range all {
		if err != nil {
			return err
		}
		if requireLetters(ctx, bus.Backend(), topic) != nil {
			continue
		}
		var t *deadletter.Topic
		var some []deadletter.Class
		if t, err = deadletter.Open(bus.Backend(), topic); err == nil {
			some, err = t.Classes(ctx, q.filter)
			classes = append(classes, some...)
		}
	}
	return errors.Join(err, q.writeClasses(cmd, classes))
}

func (q *dlq) writeClasses(cmd *cobra.Command, classes []deadletter.Class) error {
	if *q.asJSON {
		return writeJSON(cmd.OutOrStdout(), classes)
	}
	now := time.Now()
	return writeTable(cmd.OutOrStdout(), "LETTERS\tTOPIC\tGROUP\tREASON\tERROR CLASS\tTYPE\tOLDEST\tNEWEST\tERROR", classes, func(w io.Writer, c deadletter.Class) {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			c.Letters, c.Topic, c.Group, c.Reason, orDash(c.ErrorClass), orDash(c.Type), age(c.Oldest, now), age(c.Newest, now), short(c.Error))
	})
}

// requireLetters returns an error if the first event of topic is not a dead letter.
func requireLetters(ctx context.Context, b backend.Backend, topic string) error {
	all, err := operator.Topics(ctx, b)
	if err != nil {
		return err
	}
	reader, ok := backend.As[backend.Reader](b)
	if !ok {
		return nil // the command needs a Reader itself, and says so
	}
	first, _ := reader.Read(ctx, topic, "", 1) // the command will run into the same error
	if len(first) == 0 {
		return nil
	}
	event := eventbus.EventOf(&first[0])
	if _, is := eventbus.DeadLetterOf(&event); is {
		return nil
	}
	hint := ""
	if slices.Contains(all, topic+".dlq") {
		hint = "; did you mean " + topic + ".dlq?"
	}
	return fmt.Errorf("%s is not a dead-letter topic: its first event is not a dead letter%s", topic, hint)
}

// requireGroup returns an error if t has dead letters, but neither they nor the topics of
// their events have this group.
func requireGroup(ctx context.Context, b backend.Backend, t *deadletter.Topic, group string) error {
	for _, err := range t.All(ctx, deadletter.Filter{Group: group}) {
		return err // there is one
	}
	classes, err := t.Classes(ctx, deadletter.Filter{})
	var groups []string
	for _, c := range classes {
		groups = append(groups, c.Group)
		if admin, ok := backend.As[backend.Admin](b); ok {
			some, _ := admin.Groups(ctx, c.Topic) // without its groups, the hint is shorter
			groups = append(groups, some...)
		}
	}
	if err != nil || len(groups) == 0 || slices.Contains(groups, group) {
		return err
	}
	return fmt.Errorf("no dead letter is of the group %q%s", group, nearest.Hint("%s", group, groups))
}
