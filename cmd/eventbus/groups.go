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

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/survey"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
)

const groupsHelp = `Show how the groups of the topics are doing; without a topic, all groups.

  DEPTH      events that the topic keeps
  LAG        of these, not yet handed out to the group
  IN FLIGHT  with a member of the group at this moment
  DELAYED    waiting for another attempt
  OLDEST     age of the oldest event that the group has not settled
  DEAD       dead letters of the group, in the topic with .dlq at its end; unknown if
             that has more than 100,000 events or 128 MiB
  MEMBERS    attached at this moment

A further column PAUSED, if a group is paused, says by whom, why and until when.

A group of a topic with partitions is one line, with the sums over all partitions. With
--owners each line is a member of such a group, and the partitions that it owns. To see
who lives, the command looks at the members for a second, or for three if one is silent.

A number that the backend cannot tell for certain is unknown, and null in JSON.`

func newGroups(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &connection{drivers: drivers}
	var all, owners bool
	cmd := &cobra.Command{
		Use:   "groups [TOPIC...]",
		Short: "Show how groups are doing",
		Long:  groupsHelp,
		Args:  topics(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.look(cmd, func(ctx context.Context, b backend.Backend) error {
				s, err := survey.New(b)
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

func writeGroups(to io.Writer, rows []survey.Group, now time.Time) error {
	heading := "TOPIC\tGROUP\tDEPTH\tLAG\tIN FLIGHT\tDELAYED\tOLDEST\tDEAD\tMEMBERS"
	divided := slices.ContainsFunc(rows, func(g survey.Group) bool { return g.Partitions > 0 })
	if divided {
		heading += "\tPARTITIONS"
	}
	paused := slices.ContainsFunc(rows, func(g survey.Group) bool { return g.Paused != nil })
	if paused {
		heading += "\tPAUSED"
	}
	return writeTable(to, heading, rows, func(w io.Writer, g survey.Group) {
		fmt.Fprintf(w, "%s\t%s\t%v\t%v\t%v\t%v\t%s\t%v\t%v",
			g.Topic, g.Group, g.Depth, g.Lag, g.InFlight, g.Delayed, age(g.Oldest, now), g.DeadLetters, g.Members)
		writePartitions(w, divided, g.Partitions)
		if paused {
			fmt.Fprintf(w, "\t%v", g.Paused)
		}
		fmt.Fprintln(w)
	})
}

func writeOwners(to io.Writer, rows []survey.Owner) error {
	return writeTable(to, "TOPIC\tGROUP\tMEMBER\tSTATE\tOWNS\tPARTITIONS", rows, func(w io.Writer, o survey.Owner) {
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

// age returns how much time has passed from t to now, as text. It returns "-" if t is zero.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := max(now.Sub(t), 0) // the broker's clock may be ahead
	if d > 48*time.Hour {
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
	return d.Truncate(time.Second).String()
}
