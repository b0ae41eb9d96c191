package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/count"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/survey"
)

func newTopicsDeclare(drivers []backend.Driver) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}}
	return c.command(&cobra.Command{
		Use: "declare TOPIC", Short: "Make a topic", Example: "  eventbus topics declare orders",
	}, 1, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, _ string) error {
		if _, err := backend.Declare(ctx, bus.Backend(), topic, backend.Declaration{}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s exists\n", topic)
		return err
	})
}

func newTopicsDelete(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}, asJSON: asJSON}
	cmd := c.command(&cobra.Command{
		Use: "delete TOPIC", Short: "Delete a topic with its groups and events", Example: "  eventbus topics delete orders.old",
		Long: "Delete a topic with its groups and events. A running member makes it again, so stop the\nmembers first.",
	}, 1, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, _ string) error {
		admin, err := c.admin(ctx, bus.Backend(), topic, "")
		if err != nil {
			return err
		}
		s, err := survey.New(bus.Backend())
		if err != nil {
			return err
		}
		rows, err := s.Topics(ctx)
		if err != nil {
			return err
		}
		row := survey.Topic{Groups: backend.Unknown, Depth: backend.Unknown}
		for _, r := range rows {
			if r.Topic == topic {
				row = r
			}
		}
		if row.Groups != 0 || row.Depth != 0 {
			if err := c.confirm(cmd, fmt.Sprintf("delete %s and %s", events(row.Depth, "of "+topic), groups(row.Groups))); err != nil {
				return err
			}
		}
		if err := admin.DeleteTopic(ctx, topic); err != nil {
			return err
		}
		return c.print(cmd, outcome{topic, "", "deleted", row.Depth}, fmt.Sprintf("%s is deleted, with %s and %s", topic, events(row.Depth, "that it kept"), groups(row.Groups)))
	})
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

// groups writes a number of groups.
func groups(n survey.Count) string {
	if n == backend.Unknown {
		return "an unknown number of groups"
	}
	return count.Of(int64(n), "group")
}
