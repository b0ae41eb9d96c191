package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/count"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/survey"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
)

const divideHelp = `--partitions changes the number of partitions of a topic that has some, and leaves the other
settings. First let the groups settle all events, and then stop all members. Publishers
wait for about ten seconds. Then programs with the old number get an error. The command
asks before it deletes settled events that the topic keeps, or loses their order.`

// A divide is the part of topics set that changes the number of partitions.
type divide struct {
	*change
	number int
}

// A divided is the result that it prints.
type divided struct {
	Topic      string       `json:"topic"`
	Done       string       `json:"done"` // divided; unchanged
	Before     int          `json:"before"`
	Partitions int          `json:"partitions"`
	Groups     int          `json:"groups"`  // that have the partitions
	Deleted    int          `json:"deleted"` // partitions
	Events     survey.Count `json:"events"`  // that were deleted with them
}

func (d *divide) run(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic string) error {
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
	now := divided{topic, "divided", r.Before, r.Now, r.Groups, r.Deleted, survey.Count(r.Events)}
	text := fmt.Sprintf("%s has %d partitions now, in place of %d", topic, r.Now, r.Before)
	if r.Before == r.Now {
		now.Done, text = "unchanged", fmt.Sprintf("%s has %d partitions already", topic, r.Now)
	} else {
		text += ": " + groups(survey.Count(r.Groups)) + " had settled all events"
	}
	if r.Deleted > 0 {
		text += fmt.Sprintf("; the command has deleted %s, with %s", count.Of(int64(r.Deleted), "partition"), events(now.Events, "that they kept"))
	}
	if *d.asJSON {
		return writeJSON(cmd.OutOrStdout(), now)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// loses describes a loss to the operator.
func loses(topic string, number int, l partition.Loss) string {
	if o := l.Other; o != nil {
		return fmt.Sprintf("give up the change to %s that %q began at %s, and that must not run any more", count.Of(int64(o.Next), "partition"), o.By, o.Began.Format(time.RFC3339))
	}
	var parts []string
	if l.Deleted != 0 {
		parts = append(parts, "delete "+events(survey.Count(l.Deleted), fmt.Sprintf("that the partitions of %s from %d on keep", topic, number)))
	}
	if l.Mixed != 0 {
		parts = append(parts, "leave "+events(survey.Count(l.Mixed), "that "+topic+" keeps without an order with later ones of their key"))
	}
	return strings.Join(parts, " and ")
}
