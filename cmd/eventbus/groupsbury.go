package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

func newGroupsBury(drivers []backend.Driver) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}}
	var at, to, by, why string
	cmd := c.command(&cobra.Command{
		Use: "bury TOPIC GROUP --at POSITION", Short: "Make one event of a group a dead letter", Example: "  eventbus groups bury orders billing --at 00001795827900560167 --why INC-7",
		Long: "Make one event of a group a dead letter, so that the group does not get it again and goes on.\nIt is for an event that fails again and again, or whose handler hangs: eventbus processes --json\nlists such events with their positions. TOPIC may be a partition, such as orders.partition-3.\nOther groups do not notice. eventbus dlq redrive takes the event back.",
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
				return fmt.Errorf("%s is a topic of dead letters: name the topic of its own dead letters with --to", topic)
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
	f.StringVar(&to, "to", "", "the `topic` of the dead letter (default: as members announce, or TOPIC.dlq)")
	f.StringVar(&why, "why", "", "the reason, for other operators")
	f.StringVar(&by, "by", userName(), "the operator, for other operators")
	if err := cmd.MarkFlagRequired("at"); err != nil {
		panic(err) // the flag exists
	}
	return cmd
}
