package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
)

const scheduleHelp = `Look at the scheduled and recurring events of a topic, and change them.

Scheduled events wait in the topic whose name has .later at its end. A process that is
subscribed to the topic publishes them when they are due, and schedule run does the
same without a subscription. Schedule events with pub --at and pub --in, or from a
program.`

func newSchedule(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "List, cancel and publish scheduled and recurring events",
		Long:  scheduleHelp,
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(
		newScheduleList(drivers, asJSON), newScheduleCancel(drivers, asJSON), newScheduleRun(drivers),
		newScheduleEnd(drivers, asJSON), newSchedulePause(drivers, "pause", true), newSchedulePause(drivers, "resume", false),
	)
	return cmd
}

// onBus makes cmd run do with a bus. The first argument is a topic.
func onBus(drivers []backend.Driver, cmd *cobra.Command, do func(cmd *cobra.Command, bus *eventbus.Bus, topic string, rest []string) error) *cobra.Command {
	c := &connection{drivers: drivers}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		defer func() {
			if err != nil {
				err = fmt.Errorf("schedule %s: %w", cmd.Name(), err)
			}
		}()
		if err := topicArgs(1, 1)(cmd, args[:min(len(args), 1)]); err != nil {
			return err
		}
		bus, err := c.open(cmd.Context(), eventbus.Options{Service: "eventbus", Observer: logProblems(cmd.ErrOrStderr())})
		if err != nil {
			return err
		}
		defer c.close(cmd.Context(), bus)
		return do(cmd, bus, args[0], args[1:])
	}
	c.addFlags(cmd)
	return cmd
}

// A scheduled is an entry of schedule ls.
type scheduled struct {
	ID        string     `json:"id"`
	At        *time.Time `json:"at"` // null if the entry is paused or over
	Type      string     `json:"type,omitempty"`
	Key       string     `json:"key,omitempty"`
	Recurring string     `json:"recurring,omitempty"` // the ID of the recurring entry of an event
	Every     string     `json:"every,omitempty"`     // of a recurring entry: its interval, or its cron specification with its zone
	Paused    bool       `json:"paused,omitempty"`
}

func newScheduleList(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	return onBus(drivers, &cobra.Command{
		Use:   "ls TOPIC",
		Short: "List the scheduled events and the recurring entries of a topic",
		Args:  cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, bus *eventbus.Bus, topic string, _ []string) error {
		rows, err := listSchedule(cmd.Context(), bus, topic)
		if *asJSON {
			return errors.Join(writeJSON(cmd.OutOrStdout(), rows), err)
		}
		return errors.Join(writeTable(cmd.OutOrStdout(), "AT\tID\tTYPE\tKEY\tEVERY", rows, func(w io.Writer, s scheduled) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.when(), s.ID, s.Type, s.Key, s.Every)
		}), err)
	})
}

func (s scheduled) when() string {
	switch {
	case s.Paused:
		return "paused"
	case s.At == nil:
		return "-"
	}
	return s.At.UTC().Format(time.RFC3339)
}

// listSchedule returns the recurring entries of a topic, followed by its scheduled events in the order in which they are
// due.
func listSchedule(ctx context.Context, bus *eventbus.Bus, topic string) (rows []scheduled, err error) {
	entries, err := bus.RecurringEntries(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, r := range entries {
		row := scheduled{ID: r.ID, Type: r.Event.Type, Key: r.Event.Key, Every: r.Cron, Paused: r.Paused}
		switch {
		case r.Every > 0:
			row.Every = r.Every.String()
		case r.Zone != "":
			row.Every += " " + r.Zone
		}
		if !r.Next.IsZero() {
			row.At = &r.Next
		}
		rows = append(rows, row)
	}
	for s, err := range bus.Scheduled(ctx, topic) {
		if err != nil {
			return rows, err
		}
		at := s.At
		rows = append(rows, scheduled{ID: s.ID, At: &at, Type: s.Type, Key: s.Key, Recurring: s.Recurring})
	}
	return rows, nil
}

// A withdrawal is the result of schedule cancel or rm for one ID.
type withdrawal struct {
	ID   string `json:"id"`
	Done bool   `json:"done"`
}

// withdraw prints the results for ids. It returns an error unless all of them are true.
func withdraw(cmd *cobra.Command, asJSON bool, ids []string, done []bool, verb, otherwise string) error {
	rows, failed := make([]withdrawal, len(ids)), 0
	for i, id := range ids {
		if rows[i] = (withdrawal{id, done[i]}); !done[i] {
			failed++
		}
	}
	if asJSON {
		if err := writeJSON(cmd.OutOrStdout(), rows); err != nil {
			return err
		}
	}
	for _, r := range rows {
		text := verb
		if !r.Done {
			text = otherwise
		}
		if !asJSON {
			fmt.Fprintf(printable{cmd.OutOrStdout()}, "%s: %s\n", r.ID, text)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s of %d: %s", plural.Of(int64(failed), "id"), len(ids), otherwise)
	}
	return nil
}

func newScheduleCancel(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	return onBus(drivers, &cobra.Command{
		Use:   "cancel TOPIC ID...",
		Short: "Cancel scheduled events",
		Long: `Cancel scheduled events by their ids. It prints for each id whether its event is
certain never to be published, and fails unless all are.`,
		Args: cobra.MinimumNArgs(2),
	}, func(cmd *cobra.Command, bus *eventbus.Bus, topic string, ids []string) error {
		done, err := bus.CancelScheduled(cmd.Context(), topic, ids...)
		if err != nil {
			return err
		}
		return withdraw(cmd, *asJSON, ids, done, "cancelled", "not cancelled: it is unknown, published or about to be")
	})
}

func newScheduleEnd(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	return onBus(drivers, &cobra.Command{
		Use:   "rm TOPIC ID...",
		Short: "End recurring entries",
		Args:  cobra.MinimumNArgs(2),
	}, func(cmd *cobra.Command, bus *eventbus.Bus, topic string, ids []string) error {
		done, err := bus.EndRecurring(cmd.Context(), topic, ids...)
		if err != nil {
			return err
		}
		return withdraw(cmd, *asJSON, ids, done, "ended", "unknown")
	})
}

func newSchedulePause(drivers []backend.Driver, name string, paused bool) *cobra.Command {
	short := "Pause a recurring entry"
	if !paused {
		short = "Resume a paused recurring entry"
	}
	return onBus(drivers, &cobra.Command{Use: name + " TOPIC ID", Short: short, Args: cobra.ExactArgs(2)},
		func(cmd *cobra.Command, bus *eventbus.Bus, topic string, ids []string) error {
			return bus.PauseRecurring(cmd.Context(), topic, ids[0], paused)
		})
}

func newScheduleRun(drivers []backend.Driver) *cobra.Command {
	return onBus(drivers, &cobra.Command{
		Use:   "run TOPIC",
		Short: "Publish the scheduled events of a topic as they fall due, until interrupted",
		Args:  cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, bus *eventbus.Bus, topic string, _ []string) error {
		return bus.RunSchedule(cmd.Context(), topic)
	})
}
