package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/count"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/survey"
	"github.com/seed41896749/eventbus/internal/bytesize"
	"github.com/seed41896749/eventbus/internal/operator"
)

func newTopicsDeclare(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	return newTopicsSettings(drivers, asJSON, &cobra.Command{
		Use: "declare TOPIC", Short: "Make a topic", Example: "  eventbus topics declare orders --keep 24h",
		Long: "Make a topic, with settings that the broker stores. A topic that has settings keeps them.\nThe command prints the settings in force.",
	}, false)
}

func newTopicsSet(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	return newTopicsSettings(drivers, asJSON, &cobra.Command{
		Use: "set TOPIC", Short: "Change the settings of a topic", Example: "  eventbus topics set orders --keep 72h --max-messages 1000000\n  eventbus topics set orders --partitions 32",
		Long: "Replace the settings of a topic, for every process. A setting without its flag is removed.\n\n" + divideHelp,
	}, true)
}

// newTopicsSettings makes a command that declares a topic with settings. With replace, it may also
// change the number of partitions.
func newTopicsSettings(drivers []backend.Driver, asJSON *bool, cmd *cobra.Command, replace bool) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}, asJSON: asJSON}
	d := divide{change: c}
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
			err = errors.New("the topic has other settings, which stay in force: topics set changes them")
		}
		return err
	})
	f := cmd.Flags()
	f.DurationVar(&s.Keep, "keep", 0, "how long an event stays that every group has settled (default: not at all)")
	f.Int64Var(&s.MaxMessages, "max-messages", 0, "the most events of the topic (default: the bound of the backend)")
	f.StringVar(&size, "max-bytes", "", "the most `bytes` of the topic, such as 10GiB (default: the bound of the backend)")
	if replace {
		f.IntVar(&d.number, "partitions", 0, "the number of partitions, of a topic that has some")
		f.BoolVar(&c.yes, "yes", false, "do not ask")
	}
	return cmd
}

// inForce returns a text about settings, such as ", keeps events for 24h0m0s".
func inForce(s backend.TopicSettings) (text string) {
	if s.Keep > 0 {
		text += fmt.Sprintf(", keeps events for %v", s.Keep)
	}
	if s.MaxMessages > 0 {
		text += fmt.Sprintf(", has at most %s", count.Of(s.MaxMessages, "event"))
	}
	if s.MaxBytes > 0 {
		text += fmt.Sprintf(", has at most %s", count.Of(s.MaxBytes, "byte"))
	}
	return text
}

func newTopicsDelete(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &change{connection: connection{drivers: drivers}, asJSON: asJSON}
	cmd := c.command(&cobra.Command{
		Use: "delete TOPIC", Short: "Delete a topic with its groups and events", Example: "  eventbus topics delete orders.old",
		Long: "Delete a topic with its groups and events. A running member makes it again, so stop the\nmembers first.",
	}, 1, func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, _ string) error {
		admin, err := operator.Admin(ctx, bus.Backend(), topic, "")
		if err != nil {
			return err
		}
		s, err := survey.New(bus.Backend())
		if err != nil {
			return err
		}
		s.Inner = true
		rows, err := s.Topics(ctx)
		if err != nil {
			return err
		}
		row := survey.Topic{Groups: backend.Unknown, Depth: backend.Unknown}
		for _, r := range rows {
			if r.Topic == topic && r.Partitions == 0 {
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
		return c.print(cmd, outcome{topic, "", "deleted", row.Depth, ""}, fmt.Sprintf("%s is deleted, with %s and %s", topic, events(row.Depth, "that it kept"), groups(row.Groups)))
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
