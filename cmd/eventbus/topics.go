package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/internal/bytesize"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
)

func newTopics(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &connection{drivers: drivers}
	all := false
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "List the topics",
		Long: `List the topics, how many groups each has, and its depth: how many events it keeps.
The depth is unknown if the topic has no group and more than 1,000 events or 16 MiB.

A topic with partitions is one line, and its depth is the sum over all partitions.`,
		Args: topicArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.look(cmd, func(ctx context.Context, b backend.Backend) error {
				s, err := groupstats.NewSurvey(b)
				if err != nil {
					return err
				}
				s.Inner = all
				rows, err := s.Topics(ctx)
				if *asJSON {
					return errors.Join(writeJSON(cmd.OutOrStdout(), rows), err)
				}
				return errors.Join(writeTopics(cmd.OutOrStdout(), rows), err)
			})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, allUsage)
	cmd.AddCommand(newTopicsDeclare(drivers, asJSON), newTopicsSet(drivers, asJSON), newTopicsDelete(drivers, asJSON))
	return cmd
}

const allUsage = "also list the topics behind topics with partitions: partitions, owners and members"

func writeTopics(to io.Writer, rows []groupstats.TopicRow) error {
	heading := "TOPIC\tGROUPS\tDEPTH"
	divided := slices.ContainsFunc(rows, func(t groupstats.TopicRow) bool { return t.Partitions > 0 })
	if divided {
		heading += "\tPARTITIONS"
	}
	return writeTable(to, heading, rows, func(w io.Writer, t groupstats.TopicRow) {
		fmt.Fprintf(w, "%s\t%v\t%v", t.Topic, t.Groups, t.Depth)
		writePartitions(w, divided, t.Partitions)
		fmt.Fprintln(w)
	})
}

func newTopicsDeclare(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	return newTopicsSettings(drivers, asJSON, &cobra.Command{
		Use: "declare TOPIC", Short: "Create a topic", Example: "  eventbus topics declare orders --keep 24h",
		Long: "Create a topic with settings that the broker stores. A topic that already has settings keeps\nthem. The command prints the settings in force.",
	}, false)
}

func newTopicsSet(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	return newTopicsSettings(drivers, asJSON, &cobra.Command{
		Use: "set TOPIC", Short: "Change the settings of a topic", Example: "  eventbus topics set orders --keep 72h --max-messages 1000000\n  eventbus topics set orders --partitions 32",
		Long: "Replace the settings of a topic, for every process. A setting without its flag is removed.\n\n" + partitionsHelp,
	}, true)
}

// newTopicsSettings makes cmd declare a topic with settings. With replace it changes the settings of a topic, or its
// number of partitions.
func newTopicsSettings(drivers []backend.Driver, asJSON *bool, cmd *cobra.Command, replace bool) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}, asJSON: asJSON}
	d := repartition{change: c}
	var s backend.TopicSettings
	var size string
	c.command(cmd, 1, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, _ string) (err error) {
		if replace && cmd.Flags().Changed("partitions") {
			return d.run(ctx, cmd, bus, topic)
		}
		if size != "" {
			if s.MaxBytes, err = bytesize.Parse(size); err != nil {
				return fmt.Errorf("--max-bytes: %w", err)
			}
		}
		if replace {
			if err := operator.RequireStored(ctx, bus.Backend(), topic); err != nil {
				return err
			}
		}
		has, err := backend.Declare(ctx, bus.Backend(), topic, backend.Declaration{Settings: s, Replace: replace})
		if err != nil {
			return err
		}
		if _, err = fmt.Fprintf(cmd.OutOrStdout(), "%s exists%s\n", topic, inForce(has)); err == nil && has != s && s != (backend.TopicSettings{}) {
			err = errors.New("the topic has other settings, which stay in force; change them with topics set")
		}
		return err
	})
	f := cmd.Flags()
	f.DurationVar(&s.Keep, "keep", 0, "how long to keep an event that every group has settled (default: not at all)")
	f.Int64Var(&s.MaxMessages, "max-messages", 0, "the most events in the topic (default: the limit of the backend)")
	f.StringVar(&size, "max-bytes", "", "the most `bytes` in the topic, such as 10GiB (default: the limit of the backend)")
	if replace {
		f.IntVar(&d.number, "partitions", 0, "the new number of partitions of a topic that has some")
		f.BoolVar(&c.yes, "yes", false, "do not ask")
	}
	return cmd
}

// inForce describes settings, such as ", keeps events for 24h0m0s".
func inForce(s backend.TopicSettings) (text string) {
	if s.Keep > 0 {
		text += fmt.Sprintf(", keeps events for %v", s.Keep)
	}
	if s.MaxMessages > 0 {
		text += fmt.Sprintf(", has at most %s", plural.Of(s.MaxMessages, "event"))
	}
	if s.MaxBytes > 0 {
		text += fmt.Sprintf(", has at most %s", plural.Of(s.MaxBytes, "byte"))
	}
	return text
}

func newTopicsDelete(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}, asJSON: asJSON}
	cmd := c.command(&cobra.Command{
		Use: "delete TOPIC", Short: "Delete a topic with its groups and events", Example: "  eventbus topics delete orders.old",
		Long: "Delete a topic with its groups and events. A running member would create it again, so stop\nthe members first.",
	}, 1, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, _ string) error {
		admin, err := operator.Admin(ctx, bus.Backend(), topic, "")
		if err != nil {
			return err
		}
		s, err := groupstats.NewSurvey(bus.Backend())
		if err != nil {
			return err
		}
		s.Inner = true
		rows, err := s.Topics(ctx)
		if err != nil {
			return err
		}
		row := groupstats.TopicRow{Groups: backend.Unknown, Depth: backend.Unknown}
		for _, r := range rows {
			if r.Topic == topic && r.Partitions == 0 {
				row = r
			}
		}
		if row.Groups != 0 || row.Depth != 0 {
			if err := c.confirm(cmd, fmt.Sprintf("delete %s and %s", eventsText(row.Depth, "of "+topic), groupsText(row.Groups))); err != nil {
				return err
			}
		}
		if err := admin.DeleteTopic(ctx, topic); err != nil {
			return err
		}
		return c.print(cmd, outcome{topic, "", "deleted", row.Depth, ""}, fmt.Sprintf("%s is deleted, with %s and %s", topic, eventsText(row.Depth, "that it kept"), groupsText(row.Groups)))
	})
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

const partitionsHelp = `--partitions changes the number of partitions of a topic that has some, and leaves its other
settings alone. First let the groups settle all events, then stop all members. Publishers
wait for about ten seconds; after that, programs with the old number get an error. The
command asks before it deletes settled events that the topic keeps, or loses their order.`

// A repartition is the part of topics set that changes the number of partitions.
type repartition struct {
	*change
	number int
}

// A repartitioned is the result that it prints.
type repartitioned struct {
	Topic      string           `json:"topic"`
	Done       string           `json:"done"` // divided; unchanged
	Before     int              `json:"before"`
	Partitions int              `json:"partitions"`
	Groups     int              `json:"groups"`  // that have the partitions
	Deleted    int              `json:"deleted"` // partitions
	Events     groupstats.Count `json:"events"`  // that were deleted with them
}

func (d *repartition) run(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic string) error {
	for _, other := range []string{"keep", "max-messages", "max-bytes"} {
		if cmd.Flags().Changed(other) {
			return fmt.Errorf("give --partitions without --%s: it leaves the other settings as they are", other)
		}
	}
	if d.number < 1 || d.number > partition.Most {
		return fmt.Errorf("--partitions is %d, want 1 to %d", d.number, partition.Most)
	}
	if err := operator.RequireTopics(ctx, bus.Backend(), topic); err != nil {
		return err
	}
	work := partition.Change{
		Backend: bus.Backend(), Topic: topic, Number: d.number, By: cmp.Or(userName(), "an operator"),
		Confirm: func(l partition.Loss) error { return d.confirm(cmd, loses(topic, d.number, l)) },
	}
	r, err := work.Run(ctx)
	if err != nil {
		return err
	}
	now := repartitioned{topic, "divided", r.Before, r.Now, r.Groups, r.Deleted, groupstats.Count(r.Events)}
	text := fmt.Sprintf("%s has %d partitions now, in place of %d", topic, r.Now, r.Before)
	if r.Before == r.Now {
		now.Done, text = "unchanged", fmt.Sprintf("%s has %d partitions already", topic, r.Now)
	} else {
		text += ": " + groupsText(groupstats.Count(r.Groups)) + " had settled all events"
	}
	if r.Deleted > 0 {
		text += fmt.Sprintf("; the command has deleted %s, with %s", plural.Of(int64(r.Deleted), "partition"), eventsText(now.Events, "that they kept"))
	}
	if *d.asJSON {
		return writeJSON(cmd.OutOrStdout(), now)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// loses describes what the operator would lose.
func loses(topic string, number int, l partition.Loss) string {
	if o := l.Other; o != nil {
		return fmt.Sprintf("give up the change to %s that %q began at %s, and that must not run anymore", plural.Of(int64(o.Next), "partition"), o.By, o.Began.Format(time.RFC3339))
	}
	var parts []string
	if l.Deleted != 0 {
		parts = append(parts, "delete "+eventsText(groupstats.Count(l.Deleted), fmt.Sprintf("that the partitions of %s from %d on keep", topic, number)))
	}
	if l.Mixed != 0 {
		parts = append(parts, "leave "+eventsText(groupstats.Count(l.Mixed), "that "+topic+" keeps without an order with later ones of their key"))
	}
	return strings.Join(parts, " and ")
}
