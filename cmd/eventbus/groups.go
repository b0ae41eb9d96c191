package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

const groupsHelp = `Show how the groups of the given topics are doing, or all groups.

  DEPTH      events that the topic keeps
  LAG        of these, not delivered to the group yet
  IN FLIGHT  held by a member of the group right now
  DELAYED    waiting for another attempt
  OLDEST     age of the oldest event that the group has not settled
  DEAD       dead letters of the group in the topic whose name ends with .dlq; unknown
             beyond 100,000 events or 128 MiB
  MEMBERS    attached right now

If a group is paused, a PAUSED column says who paused it, why and until when.

A group of a topic with partitions is one line, with the sums over all partitions. With
--owners each line is a member of such a group and the partitions that it owns. To see
who is alive, the command watches the members for a second, or for three if one is
silent.

A number that the backend does not know for certain is unknown, and null in JSON.`

func newGroups(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &connection{drivers: drivers}
	var all, owners bool
	cmd := &cobra.Command{
		Use:   "groups [TOPIC...]",
		Short: "Show how groups are doing",
		Long:  groupsHelp,
		Args:  topicArgs(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.look(cmd, func(ctx context.Context, b backend.Backend) error {
				s, err := groupstats.NewSurvey(b)
				if err != nil {
					return err
				}
				if err := operator.RequireTopics(ctx, b, args...); err != nil {
					return err
				}
				if s.Inner = all; owners {
					rows, err := s.Owners(ctx, args...)
					if *asJSON {
						return errors.Join(writeJSON(cmd.OutOrStdout(), rows), err)
					}
					return errors.Join(writeOwners(cmd.OutOrStdout(), rows), err)
				}
				rows, err := s.Groups(ctx, args...)
				if *asJSON {
					return errors.Join(writeJSON(cmd.OutOrStdout(), rows), err)
				}
				return errors.Join(writeGroups(cmd.OutOrStdout(), rows, time.Now()), err)
			})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, allUsage)
	cmd.Flags().BoolVar(&owners, "owners", false, "show which member owns which partitions")
	cmd.AddCommand(newGroupsCreate(drivers), newGroupsReset(drivers, asJSON), newGroupsDelete(drivers, asJSON), newGroupsBury(drivers), newGroupsPause(drivers), newGroupsResume(drivers))
	return cmd
}

func writeGroups(to io.Writer, rows []groupstats.GroupRow, now time.Time) error {
	heading := "TOPIC\tGROUP\tDEPTH\tLAG\tIN FLIGHT\tDELAYED\tOLDEST\tDEAD\tMEMBERS"
	divided := slices.ContainsFunc(rows, func(g groupstats.GroupRow) bool { return g.Partitions > 0 })
	if divided {
		heading += "\tPARTITIONS"
	}
	paused := slices.ContainsFunc(rows, func(g groupstats.GroupRow) bool { return g.Paused != nil })
	if paused {
		heading += "\tPAUSED"
	}
	return writeTable(to, heading, rows, func(w io.Writer, g groupstats.GroupRow) {
		fmt.Fprintf(w, "%s\t%s\t%v\t%v\t%v\t%v\t%s\t%v\t%v",
			g.Topic, g.Group, g.Depth, g.Lag, g.InFlight, g.Delayed, age(g.Oldest, now), g.DeadLetters, g.Members)
		writePartitions(w, divided, g.Partitions)
		if paused {
			fmt.Fprintf(w, "\t%v", g.Paused)
		}
		fmt.Fprintln(w)
	})
}

func writeOwners(to io.Writer, rows []groupstats.OwnerRow) error {
	return writeTable(to, "TOPIC\tGROUP\tMEMBER\tSTATE\tOWNS\tPARTITIONS", rows, func(w io.Writer, o groupstats.OwnerRow) {
		member, state := cmp.Or(o.Member, "-"), "silent"
		switch {
		case o.Member == "":
			state = "free"
		case o.Lives:
			state = "lives"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", o.Topic, o.Group, member, state, len(o.Partitions), cmp.Or(partition.Ranges(o.Partitions), "-"))
	})
}

func newGroupsCreate(drivers []backend.Driver) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}}
	var start string
	cmd := c.command(&cobra.Command{
		Use: "create TOPIC GROUP", Short: "Create a group before its first member subscribes", Example: "  eventbus groups create orders billing --start latest",
		Long: "Create a group, and the topic if it is missing. From now on the topic keeps events for the\ngroup. An existing group stays as it is.",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error {
		from, err := parseStart("start", start)
		if err == nil {
			err = backend.DeclareGroup(ctx, bus.Backend(), topic, group, from)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s exists\n", topic, group)
		return err
	})
	cmd.Flags().StringVar(&start, "start", "earliest", startUsage)
	return cmd
}

func newGroupsReset(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}, asJSON: asJSON}
	var to string
	cmd := c.command(&cobra.Command{
		Use: "reset TOPIC GROUP", Short: "Let a group start over from another position", Example: "  eventbus groups reset orders billing --to latest --yes",
		Long: "Let a group start over. It forgets which events it held and which were waiting for another\nattempt, and running members continue from the new position. The topic still has the events that\nsome group has not settled, and settled ones if it keeps them: see topics set --keep.",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error {
		if to == "" {
			return errors.New("give --to")
		}
		start, err := parseStart("to", to)
		if err != nil {
			return err
		}
		admin, err := operator.Admin(ctx, bus.Backend(), topic, group)
		if err != nil {
			return err
		}
		if start != eventbus.StartEarliest {
			if err := c.confirm(cmd, "skip some of "+eventsText(unsettled(ctx, bus.Backend(), topic, group), "that "+group+" has not settled")); err != nil {
				return err
			}
		}
		if err := admin.ResetGroup(ctx, topic, group, start); err != nil {
			return err
		}
		first, where := begins(ctx, bus.Backend(), topic, start)
		now := outcome{topic, group, "reset", unsettled(ctx, bus.Backend(), topic, group), first}
		return c.print(cmd, now, fmt.Sprintf("%s/%s starts over%s: it gets %s", topic, group, where, eventsText(now.Events, "now")))
	})
	cmd.Flags().StringVar(&to, "to", "", startUsage)
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

// begins returns the position of the first event that a group gets from start on, and a text about it. Both are empty if
// there is no such event yet, or if the backend does not know.
func begins(ctx context.Context, b backend.Backend, topic string, start eventbus.Start) (position, text string) {
	if start == eventbus.StartLatest {
		return "", ""
	}
	first, err := backend.Read(ctx, b, topic, start, 1)
	oldest, err2 := backend.Read(ctx, b, topic, eventbus.StartEarliest, 1)
	switch {
	case err != nil || err2 != nil || len(first) == 0:
		return "", ""
	case first[0].Position == oldest[0].Position:
		return first[0].Position, " with the oldest event kept, at position " + first[0].Position
	}
	return first[0].Position, " at position " + first[0].Position
}

func newGroupsDelete(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}, asJSON: asJSON}
	cmd := c.command(&cobra.Command{
		Use: "delete TOPIC GROUP", Short: "Delete a group that nobody uses", Example: "  eventbus groups delete orders audit",
		Long: "Delete a group. The topic no longer keeps events for it. A running member would create the\ngroup again, so stop the members first.",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error {
		admin, err := operator.Admin(ctx, bus.Backend(), topic, group)
		if err != nil {
			return err
		}
		n := unsettled(ctx, bus.Backend(), topic, group)
		if n != 0 {
			if err := c.confirm(cmd, "forget "+eventsText(n, "that "+group+" has not settled")); err != nil {
				return err
			}
		}
		if err := admin.DeleteGroup(ctx, topic, group); err != nil {
			return err
		}
		return c.print(cmd, outcome{topic, group, "deleted", n, ""}, fmt.Sprintf("%s/%s is deleted, with %s", topic, group, eventsText(n, "that it had not settled")))
	})
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

func newGroupsPause(drivers []backend.Driver) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}}
	var p backend.Pause
	var until string
	cmd := c.command(&cobra.Command{
		Use: "pause TOPIC GROUP", Short: "Stop all members of a group", Example: "  eventbus groups pause orders billing --why 'the bank is closed' --until 2h",
		Long: "Stop all members of a group in all processes within about a second, including members that\nattach later. The broker stores the pause. Events that are already held are still handled.\nThe members report the pause in their state and log. A second pause replaces the first.",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) (err error) {
		if p.Until, err = operator.End(until); err != nil {
			return namedFlag("until", err)
		}
		pauser, err := operator.Pauser(ctx, bus.Backend(), topic, group)
		if err == nil {
			err = pauser.Pause(ctx, topic, group, p)
		}
		if err != nil {
			return err
		}
		n := eventsText(unsettled(ctx, bus.Backend(), topic, group), "that it has not settled")
		end := "until eventbus groups resume"
		if !p.Until.IsZero() {
			end = "until " + p.Until.Format(time.RFC3339)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s is paused %s, with %s\n", topic, group, end, n)
		return err
	})
	f := cmd.Flags()
	f.StringVar(&p.Why, "why", "", "the reason, for other operators")
	f.StringVar(&p.By, "by", userName(), "the operator, for other operators")
	f.StringVar(&until, "until", "", "when the pause ends by itself: a `time` or a duration such as 2h (default: never)")
	return cmd
}

func newGroupsResume(drivers []backend.Driver) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}}
	return c.command(&cobra.Command{
		Use: "resume TOPIC GROUP", Short: "End the pause of a group", Example: "  eventbus groups resume orders billing",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error {
		pauser, err := operator.Pauser(ctx, bus.Backend(), topic, group)
		if err == nil {
			err = pauser.Resume(ctx, topic, group)
		}
		if err != nil {
			return err
		}
		n := eventsText(unsettled(ctx, bus.Backend(), topic, group), "that it has not settled")
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s resumes, with %s\n", topic, group, n)
		return err
	})
}

func newGroupsBury(drivers []backend.Driver) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}}
	var at, to, by, why string
	cmd := c.command(&cobra.Command{
		Use: "bury TOPIC GROUP --at POSITION", Short: "Turn one event of a group into a dead letter", Example: "  eventbus groups bury orders billing --at 00001795827900560167 --why INC-7",
		Long: "Turn one event of a group into a dead letter, so that the group does not get it again and goes\non. Use it for an event that keeps failing or whose handler hangs: eventbus processes --json\nlists such events with their positions. TOPIC may be a partition, such as orders.partition-3.\nOther groups do not notice. eventbus dlq redrive brings the event back.",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error {
		b := bus.Backend()
		all, err := presence.Processes(ctx, b)
		if err != nil && len(all) == 0 && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, backend.ErrDenied) {
			return err
		}
		if to == "" {
			of, _, parts := partition.Cut(topic)
			if !parts {
				of = topic
			}
			if to = presence.LettersOf(all, of, group); to == "" {
				return fmt.Errorf("%s is a dead-letter topic: name the topic for its own dead letters with --to", topic)
			}
		}
		letters, err := deadletter.Open(b, to)
		if err != nil {
			return namedFlag("to", err)
		}
		known, _ := presence.EventAt(all, topic, group, at)
		l, err := letters.Bury(ctx, deadletter.Burial{
			Topic: topic, Group: group, Position: at, By: by, Why: why, Error: known.Error, Attempts: known.Attempt,
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "event %s of %s/%s is a dead letter in %s\n", l.ID, topic, group, to)
		return err
	})
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "the `position` of the event in the topic")
	f.StringVar(&to, "to", "", "the `topic` of the dead letter (default: what members announce, or TOPIC.dlq)")
	f.StringVar(&why, "why", "", "the reason, for other operators")
	f.StringVar(&by, "by", userName(), "the operator, for other operators")
	if err := cmd.MarkFlagRequired("at"); err != nil {
		panic(err) // the flag exists
	}
	return cmd
}
