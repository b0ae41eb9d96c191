package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/operator"
)

func newDLQList(q *dlq) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [TOPIC]", Short: "Count dead letters by class", Example: "  eventbus dlq ls orders.dlq",
		Long: "Count dead letters by class. Without TOPIC it counts the letters of all dead-letter topics.",
	}
	q.command(cmd, func(ctx context.Context, cmd *cobra.Command, t *deadletter.Topic) error {
		classes, err := t.Classes(ctx, q.filter)
		if err != nil {
			return err
		}
		return q.writeClasses(cmd, classes)
	})
	one := cmd.RunE
	cmd.Args = topics(0, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return one(cmd, args)
		}
		if err := q.listAll(cmd); err != nil {
			return fmt.Errorf("dlq ls: %w", err)
		}
		return nil
	}
	return cmd
}

// listAll counts the letters of all dead-letter topics.
func (q *dlq) listAll(cmd *cobra.Command) error {
	ctx := cmd.Context()
	bus, err := q.prepare(cmd)
	if err != nil {
		return err
	}
	defer q.close(ctx, bus)
	all, err := operator.Topics(ctx, bus.Backend())
	if err == nil && all == nil {
		err = errors.New("give the dead-letter topic: the backend does not list its topics")
	}
	var classes []deadletter.Class
	for _, topic := range all {
		if err != nil {
			return err
		}
		if requireLetters(ctx, bus.Backend(), topic) != nil {
			continue
		}
		var t *deadletter.Topic
		var some []deadletter.Class
		if t, err = deadletter.Open(bus.Backend(), topic); err == nil {
			some, err = t.Classes(ctx, q.filter)
			classes = append(classes, some...)
		}
	}
	return errors.Join(err, q.writeClasses(cmd, classes))
}

func (q *dlq) writeClasses(cmd *cobra.Command, classes []deadletter.Class) error {
	if *q.asJSON {
		return writeJSON(cmd.OutOrStdout(), classes)
	}
	now := time.Now()
	return writeTable(cmd.OutOrStdout(), "LETTERS\tTOPIC\tGROUP\tREASON\tERROR CLASS\tTYPE\tOLDEST\tNEWEST\tERROR", classes, func(w io.Writer, c deadletter.Class) {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			c.Letters, c.Topic, c.Group, c.Reason, orDash(c.ErrorClass), orDash(c.Type), age(c.Oldest, now), age(c.Newest, now), short(c.Error))
	})
}
