package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/lifecycle"
)

const tailHelp = `Print the events of a topic, one line of JSON each, in the form that pub reads, with
"topic" and "position". pub refuses dead letters: use dlq export for those. tail needs
no group, and no group notices.

It begins with the oldest event that the topic keeps. --from begins after a position
or at a time, --since 2h with the events of the last two hours, and --from latest
skips what is there. Without --follow it stops at the end of the topic. With it, it
polls for more until you interrupt it, four times a second at first and down to once
in two seconds while nothing comes. It also waits for a topic that does not exist yet
and for a backend that has gone away.

With --lifecycle it prints the records of package lifecycle about the events of the
topic: runs, retries, dead letters. TOPIC/GROUP selects the records of one group.`

// A tail is the command "eventbus tail", with its flags.
type tail struct {
	connection

	from      string
	since     string
	follow    bool
	count     int
	lifecycle bool
}

func newTail(drivers []backend.Driver) *cobra.Command {
	t := &tail{connection: connection{drivers: drivers}}
	cmd := &cobra.Command{
		Use:     "tail TOPIC",
		Short:   "Print the events of a topic",
		Long:    tailHelp,
		Example: "  eventbus tail orders\n  eventbus tail orders --follow --from latest\n  eventbus tail --lifecycle orders/billing --follow",
		Args:    t.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.run(cmd, args[0]); err != nil {
				return fmt.Errorf("tail: %w", err)
			}
			return nil
		},
	}
	t.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&t.from, "from", "earliest", startUsage)
	f.StringVar(&t.since, "since", "", "begin with the events stored since a `time`, or within a duration such as 2h")
	f.BoolVar(&t.follow, "follow", false, "wait for more at the end")
	f.BoolVar(&t.lifecycle, "lifecycle", false, "print the records about the events of TOPIC or TOPIC/GROUP")
	f.IntVar(&t.count, "count", 0, "end after this many events (default: never)")
	complete(cmd, "from", []choice[bool]{{"earliest", true}, {"latest", true}})
	return cmd
}

const (
	tailPage = 100 // messages per read, at most 100 MiB together

	pollFirst = 250 * time.Millisecond
	pollLast  = 2 * time.Second
)

// args checks the arguments: a topic or, with --lifecycle, TOPIC/GROUP.
func (t *tail) args(cmd *cobra.Command, args []string) error {
	if t.lifecycle && len(args) == 1 {
		topic, group, cut := strings.Cut(args[0], "/")
		if err := backend.CheckName(group); cut && err != nil {
			return fmt.Errorf("%s: group %w", cmd.Name(), err)
		}
		args = []string{topic}
	}
	return topicArgs(1, 1)(cmd, args)
}

func (t *tail) run(cmd *cobra.Command, topic string) error {
	if t.count < 0 {
		return errors.New("--count is negative")
	}
	if err := filled(cmd, "from"); err != nil {
		return err
	}
	ctx := cmd.Context()
	bus, err := t.open(ctx, eventbus.Options{Service: "eventbus", Observer: logProblems(cmd.ErrOrStderr())})
	if err != nil {
		return err
	}
	defer t.close(ctx, bus)
	r, ok := backend.As[backend.Reader](bus.Backend())
	if !ok {
		return fmt.Errorf("this backend cannot be read without a group: %w; use sub", errors.ErrUnsupported)
	}
	group := ""
	if t.lifecycle {
		topic, group, _ = strings.Cut(topic, "/")
		topic = lifecycle.Topic(topic)
	}
	from, err := t.begin(ctx, r, topic)
	left, poll := t.count, pollFirst
	for err == nil {
		var ms []backend.Message
		if ms, err = t.read(ctx, r, topic, from); errors.Is(err, backend.ErrGone) {
			from = eventbus.StartEarliest // a topic that is created again may have lower positions
		}
		if t.passes(ctx, err) {
			err = nil
		}
		switch {
		case err != nil:
		case len(ms) > 0:
			from, poll = backend.StartAfter(ms[len(ms)-1].Position), pollFirst
			if t.lifecycle {
				ms = slices.DeleteFunc(ms, func(m backend.Message) bool { return !isRecord(&m, group) })
			}
			if t.count > 0 {
				ms = ms[:min(len(ms), left)]
				left -= len(ms)
			}
			err = t.write(cmd, ms)
			if t.count > 0 && left == 0 {
				return err
			}
		case !t.follow:
			return nil
		default:
			if !wait.Sleep(ctx, poll) {
				err = context.Cause(ctx)
			}
			poll = min(poll*2, pollLast)
		}
	}
	if t.follow && ctx.Err() != nil {
		return nil // an interrupt ends --follow normally
	}
	return err
}

// begin returns where to read first. It replaces latest by the last position, so that no event between two reads is
// missed.
func (t *tail) begin(ctx context.Context, r backend.Reader, topic string) (from eventbus.Start, err error) {
	if t.since != "" {
		since, err := parseTime("since", t.since)
		return eventbus.StartAt(since), err
	}
	if from, err = parseStart("from", t.from); err != nil || from != eventbus.StartLatest {
		return from, err
	}
	from = eventbus.StartEarliest
	for poll := pollFirst; ; poll = min(poll*2, pollLast) {
		ms, err := t.read(ctx, r, topic, from)
		switch {
		case errors.Is(err, backend.ErrGone) && t.follow:
			return "", nil
		case t.passes(ctx, err):
			if !wait.Sleep(ctx, poll) {
				return "", context.Cause(ctx)
			}
		case err != nil || len(ms) == 0:
			return from, err
		default:
			from, poll = backend.StartAfter(ms[len(ms)-1].Position), pollFirst
		}
	}
}

// read calls Read of the backend once.
func (t *tail) read(ctx context.Context, r backend.Reader, topic string, from eventbus.Start) (ms []backend.Message, err error) {
	err = t.bound(ctx, func(ctx context.Context) (err error) {
		ms, err = r.Read(ctx, topic, from, tailPage)
		return err
	})
	return ms, err
}

// passes reports whether, with --follow, err may pass and the read is worth repeating. Reads are harmless to repeat if
// their outcome is unknown.
func (t *tail) passes(ctx context.Context, err error) bool {
	_, silent := errors.AsType[*timeoutError](err)
	passes := silent || errors.Is(err, backend.ErrGone) || errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome)
	return passes && t.follow && ctx.Err() == nil
}

// isRecord reports whether m is a record of package lifecycle about group, or about any group
// if group is empty.
func isRecord(m *backend.Message, group string) bool {
	r, ok, err := lifecycle.Decode(m)
	return ok && err == nil && (group == "" || r.Group == group)
}

func (t *tail) write(cmd *cobra.Command, ms []backend.Message) error {
	var lines []byte
	for i := range ms {
		if t.lifecycle {
			lines = append(append(lines, eventbus.EventOf(&ms[i]).Payload...), '\n')
			continue
		}
		lines = ndjson.Append(lines, &eventbus.Delivery{Event: eventbus.EventOf(&ms[i]), Topic: ms[i].Topic})
	}
	_, err := cmd.OutOrStdout().Write(lines)
	return err
}
