package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/wait"
)

const topHelp = `Show how the groups of the given topics are doing, or all groups, and refresh the
screen until you interrupt it. Groups in trouble come first.

  STATUS  ok, paused, unknown, behind (the oldest event is a minute old), no members,
          stuck (five minutes old, and no progress for a minute), or losing (the topic
          no longer has all events that the group has not settled)

The other columns are those of eventbus groups. DEAD has a + while dead letters are
being counted, and beyond 100,000. A topic with partitions is one topic. While the
broker does not answer, the last numbers stay on the screen with their age.

The broker gets at most 100 calls a second on average, so with many groups the screen
is refreshed less often. With --json each round is a line.`

// A top is the command "eventbus top", with its flags.
type top struct {
	connection
	asJSON *bool

	interval time.Duration
	count    int
	rows     int
}

func newTop(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	t := &top{connection: connection{drivers: drivers}, asJSON: asJSON}
	cmd := &cobra.Command{
		Use:     "top [TOPIC...]",
		Short:   "Show how groups are doing, live",
		Long:    topHelp,
		Example: "  eventbus top\n  eventbus top orders --count 1 --json",
		Args:    topicArgs(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.run(cmd, args); err != nil {
				return fmt.Errorf("top: %w", err)
			}
			return nil
		},
	}
	t.addFlags(cmd)
	f := cmd.Flags()
	f.DurationVar(&t.interval, "interval", 2*time.Second, "the `time` between rounds")
	f.IntVar(&t.count, "count", 0, "end after this many rounds (default: never)")
	f.IntVar(&t.rows, "rows", 40, "show at most this many groups; 0: all")
	return cmd
}

func (t *top) run(cmd *cobra.Command, names []string) error {
	switch {
	case t.interval < 100*time.Millisecond:
		return errors.New("--interval is less than 100ms")
	case t.count < 0 || t.rows < 0:
		return errors.New("--count and --rows must not be negative")
	}
	ctx := cmd.Context()
	bus, err := t.open(ctx, eventbus.Options{Service: "eventbus", Observer: logProblems(cmd.ErrOrStderr())})
	if err != nil {
		return err
	}
	defer t.close(ctx, bus)
	if err := t.bound(ctx, func(ctx context.Context) error { return operator.RequireTopics(ctx, bus.Backend(), names...) }); err != nil {
		return err
	}
	sampler := groupstats.NewSampler(bus.Backend(), groupstats.Options{Interval: t.interval, Timeout: t.timeout})
	clear := ""
	if isTerminal(cmd.OutOrStdout()) {
		clear = "\x1b[H\x1b[2J"
	}
	var before time.Time
	for n := 0; ; {
		if s := sampler.Look(ctx); !s.Tried.Equal(before) {
			before = s.Tried
			if err := t.write(cmd.OutOrStdout(), clear, s, names); err != nil {
				return err
			}
			if n++; n == t.count {
				return s.Err
			}
		}
		if !wait.Sleep(ctx, min(t.interval/4, 250*time.Millisecond)) {
			return nil // an interrupt ends it normally
		}
	}
}

// A round is a line of top --json.
type round struct {
	Taken  time.Time `json:"taken,omitzero"` // when the stats were taken
	Error  string    `json:"error,omitempty"`
	Groups []topRow  `json:"groups"`
}

// A topRow is a group of a round.
type topRow struct {
	Topic  string `json:"topic"`
	Group  string `json:"group"`
	Status string `json:"status"`
	groupstats.Stats
	Told        bool             `json:"told"` // the backend has described the group
	DeadLetters groupstats.Count `json:"dead_letters"`
	More        bool             `json:"more_dead_letters,omitempty"` // there may be more
	Error       string           `json:"error,omitempty"`
}

func newTopRow(g *groupstats.Group) topRow {
	r := topRow{g.Topic, g.Name, g.Status.String(), g.Stats, g.Told, groupstats.Count(g.Dead.N), g.Dead.More, g.Err}
	if g.Dead.Unknown {
		r.DeadLetters = backend.Unknown
	}
	return r
}

// dead returns the number of dead letters as text.
func (r *topRow) dead() string {
	if r.More {
		return r.DeadLetters.String() + "+"
	}
	return r.DeadLetters.String()
}

// write prints a round.
func (t *top) write(w io.Writer, clear string, s *groupstats.Snapshot, names []string) error {
	rows := []topRow{}
	n := map[groupstats.Status]int{}
	for _, g := range s.Groups() {
		if len(names) == 0 || slices.Contains(names, g.Topic) {
			n[g.Status]++
			rows = append(rows, newTopRow(g))
		}
	}
	all := len(rows)
	if t.rows > 0 {
		rows = rows[:min(t.rows, all)]
	}
	if *t.asJSON {
		line := round{Taken: s.Taken, Groups: rows}
		if s.Err != nil {
			line.Error = s.Err.Error()
		}
		return json.NewEncoder(w).Encode(line)
	}
	now := time.Now()
	text := &strings.Builder{}
	fmt.Fprintln(text, headline(s, n, now))
	err := writeTable(text, "TOPIC\tGROUP\tSTATUS\tLAG\tIN FLIGHT\tDELAYED\tOLDEST\tDEAD\tMEMBERS", rows, func(w io.Writer, r topRow) {
		oldest := "unknown"
		if r.Told {
			oldest = age(r.Oldest, now)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%v\t%v\t%s\t%s\t%v\n", r.Topic, r.Group, r.Status, r.Lag, r.InFlight, r.Delayed, oldest, r.dead(), r.Members)
	})
	if err != nil {
		return err
	}
	if hidden := all - len(rows) + s.Beyond; hidden > 0 {
		fmt.Fprintf(text, "%d further groups\n", hidden)
	}
	_, err = io.WriteString(w, clear+text.String())
	return err
}

// headline returns the first line: how many groups have each status, or why there are no new numbers.
func headline(s *groupstats.Snapshot, n map[groupstats.Status]int, now time.Time) string {
	var words []string
	for _, st := range groupstats.Statuses {
		if n[st] > 0 {
			words = append(words, fmt.Sprintf("%d %v", n[st], st))
		}
	}
	text := now.Format(time.TimeOnly) + "  groups: " + strings.Join(words, ", ")
	if len(words) == 0 {
		text += "none"
	}
	switch {
	case s.Err != nil && s.Taken.IsZero():
		text = now.Format(time.TimeOnly) + "  no numbers yet: " + short(s.Err.Error())
	case s.Err != nil:
		text += "  (numbers of " + age(s.Taken, now) + " ago: " + short(s.Err.Error()) + ")"
	}
	return text
}
