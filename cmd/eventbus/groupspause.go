package main

import (
	"context"
	"fmt"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/operator"
)

func newGroupsPause(drivers []backend.Driver) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}}
	var p backend.Pause
	var until string
	cmd := c.command(&cobra.Command{
		Use: "pause TOPIC GROUP", Short: "Stop all members of a group", Example: "  eventbus groups pause orders billing --why 'the bank is closed' --until 2h",
		Long: "Stop all members of a group, in all processes, within about a second, and members that\nattach later too. The broker stores the pause. Events that are held are still handled.\nThe members show the pause in their state and log. A second pause replaces the first.",
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
		n := events(unsettled(ctx, bus.Backend(), topic, group), "that it has not settled")
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
	f.StringVar(&until, "until", "", "when the pause ends by itself: a `time`, or a duration such as 2h (default: never)")
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
		n := events(unsettled(ctx, bus.Backend(), topic, group), "that it has not settled")
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s goes on, with %s\n", topic, group, n)
		return err
	})
}

// userName returns the name of the present user of the system, or "".
func userName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}
