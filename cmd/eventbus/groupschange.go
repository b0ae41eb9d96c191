package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

const startUsage = "earliest, latest, or the `position` after which the group begins"

// parseStart returns the Start that a flag names.
func parseStart(text string) eventbus.Start {
	switch text {
	case "earliest":
		return eventbus.StartEarliest
	case "latest":
		return eventbus.StartLatest
	}
	return backend.StartAfter(text)
}

func newGroupsCreate(drivers []backend.Driver) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}}
	var start string
	cmd := c.command(&cobra.Command{
		Use: "create TOPIC GROUP", Short: "Make a group before its first member subscribes", Example: "  eventbus groups create orders billing --start latest",
		Long: "Make a group, and the topic if it is missing. The topic keeps the events for the group\nfrom now on. A group that exists stays as it is.",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error {
		if start == "" {
			return errors.New("--start is empty")
		}
		if err := backend.DeclareGroup(ctx, bus.Backend(), topic, group, parseStart(start)); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s/%s exists\n", topic, group)
		return err
	})
	cmd.Flags().StringVar(&start, "start", "earliest", startUsage)
	return cmd
}

func newGroupsReset(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}, asJSON: asJSON}
	var to string
	cmd := c.command(&cobra.Command{
		Use: "reset TOPIC GROUP", Short: "Let a group begin again elsewhere", Example: "  eventbus groups reset orders billing --to latest --yes",
		Long: "Let a group begin again. It forgets which events it held, and which waited for another\nattempt. Running members go on from there. A topic keeps no event that all its groups\nhave settled, so --to earliest brings none of these back.",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error {
		if to == "" {
			return errors.New("give --to")
		}
		admin, err := c.admin(ctx, bus.Backend(), topic, group)
		if err != nil {
			return err
		}
		if to != "earliest" {
			if err := c.confirm(cmd, "skip some of "+events(unsettled(ctx, bus.Backend(), topic, group), "that "+group+" has not settled")); err != nil {
				return err
			}
		}
		if err := admin.ResetGroup(ctx, topic, group, parseStart(to)); err != nil {
			return err
		}
		now := outcome{topic, group, "reset", unsettled(ctx, bus.Backend(), topic, group)}
		return c.print(cmd, now, fmt.Sprintf("%s/%s begins again: it gets %s", topic, group, events(now.Events, "now")))
	})
	cmd.Flags().StringVar(&to, "to", "", startUsage)
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

func newGroupsDelete(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}, asJSON: asJSON}
	cmd := c.command(&cobra.Command{
		Use: "delete TOPIC GROUP", Short: "Delete a group that nobody uses", Example: "  eventbus groups delete orders audit",
		Long: "Delete a group. The topic no longer keeps events for it. A running member makes the\ngroup again, so stop the members first.",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error {
		admin, err := c.admin(ctx, bus.Backend(), topic, group)
		if err != nil {
			return err
		}
		n := unsettled(ctx, bus.Backend(), topic, group)
		if n != 0 {
			if err := c.confirm(cmd, "forget "+events(n, "that "+group+" has not settled")); err != nil {
				return err
			}
		}
		if err := admin.DeleteGroup(ctx, topic, group); err != nil {
			return err
		}
		return c.print(cmd, outcome{topic, group, "deleted", n}, fmt.Sprintf("%s/%s is deleted, with %s", topic, group, events(n, "that it had not settled")))
	})
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}
