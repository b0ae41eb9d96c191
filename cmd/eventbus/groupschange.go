package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/operator"
)

func newGroupsCreate(drivers []backend.Driver) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}}
	var start string
	cmd := c.command(&cobra.Command{
		Use: "create TOPIC GROUP", Short: "Make a group before its first member subscribes", Example: "  eventbus groups create orders billing --start latest",
		Long: "Make a group, and the topic if it is missing. The topic keeps the events for the group\nfrom now on. A group that exists stays as it is.",
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
		Use: "reset TOPIC GROUP", Short: "Let a group begin again elsewhere", Example: "  eventbus groups reset orders billing --to latest --yes",
		Long: "Let a group begin again. It forgets which events it held, and which waited for another\nattempt. Running members go on from there. The topic has the events that some group has\nnot settled, and settled ones if it keeps them: see topics set --keep.",
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
			if err := c.confirm(cmd, "skip some of "+events(unsettled(ctx, bus.Backend(), topic, group), "that "+group+" has not settled")); err != nil {
				return err
			}
		}
		if err := admin.ResetGroup(ctx, topic, group, start); err != nil {
			return err
		}
		first, where := begins(ctx, bus.Backend(), topic, start)
		now := outcome{topic, group, "reset", unsettled(ctx, bus.Backend(), topic, group), first}
		return c.print(cmd, now, fmt.Sprintf("%s/%s begins again%s: it gets %s", topic, group, where, events(now.Events, "now")))
	})
	cmd.Flags().StringVar(&to, "to", "", startUsage)
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

// begins returns the position of the first event that a group gets from start on, and a text
// about it. It returns nothing if there is none yet, or if the backend cannot tell.
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
		Long: "Delete a group. The topic no longer keeps events for it. A running member makes the\ngroup again, so stop the members first.",
	}, 2, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error {
		admin, err := operator.Admin(ctx, bus.Backend(), topic, group)
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
		return c.print(cmd, outcome{topic, group, "deleted", n, ""}, fmt.Sprintf("%s/%s is deleted, with %s", topic, group, events(n, "that it had not settled")))
	})
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}
