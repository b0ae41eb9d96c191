package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/operator"
)

// A change is a command that changes a topic or a group. If events may be lost, it asks for confirmation on a terminal,
// and needs --yes elsewhere.
type change struct {
	connection
	yes    bool
	asJSON *bool
}

// An outcome is the printed result of a change.
type outcome struct {
	Topic  string           `json:"topic"`
	Group  string           `json:"group,omitempty"`
	Done   string           `json:"done"`           // deleted or reset
	Events groupstats.Count `json:"events"`         // deleted: lost with it; reset: the group gets them now
	From   string           `json:"from,omitempty"` // reset: the position of the first of Events
}

// command makes cmd call do with a bus. Its arguments are a topic and, if names is 2, one of the topic's groups.
func (c *change) command(cmd *cobra.Command, names int, do func(ctx context.Context, cmd *cobra.Command, bus *eventbus.Bus, topic, group string) error) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if names == 1 {
			return topicArgs(1, 1)(cmd, args)
		}
		if len(args) != 2 {
			return fmt.Errorf("%s: needs a topic and a group: %s", cmd.Name(), cmd.UseLine())
		}
		if err := backend.CheckName(args[1]); err != nil {
			return fmt.Errorf("%s: group %w", cmd.Name(), err)
		}
		return topicArgs(1, 1)(cmd, args[:1])
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		defer func() {
			if err != nil {
				err = fmt.Errorf("%s %s: %w", cmd.Parent().Name(), cmd.Name(), err)
			}
		}()
		bus, err := c.open(cmd.Context(), eventbus.Options{Service: "eventbus", Observer: logProblems(cmd.ErrOrStderr())})
		if err != nil {
			return err
		}
		defer c.close(cmd.Context(), bus)
		group := ""
		if names == 2 {
			group = args[1]
		}
		return do(cmd.Context(), cmd, bus, args[0], group)
	}
	c.addFlags(cmd)
	return cmd
}

// confirm returns nil if the user agrees to a change. It asks on a terminal; elsewhere --yes must be given.
func (c *change) confirm(cmd *cobra.Command, would string) error {
	if c.yes {
		return nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if info, err := in.Stat(); !ok || err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return fmt.Errorf("this would %s: confirm with --yes", would)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "This would %s. Continue? [y/N] ", would)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// print prints an outcome as JSON or as text.
func (c *change) print(cmd *cobra.Command, o outcome, text string) error {
	if *c.asJSON {
		return writeJSON(cmd.OutOrStdout(), o)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// unsettled returns how many events a group has not settled.
func unsettled(ctx context.Context, b backend.Backend, topic, group string) groupstats.Count {
	return groupstats.Count(operator.Unsettled(ctx, b, topic, group))
}

// eventsText returns a number of events as text, such as "12 events that billing has not settled".
func eventsText(n groupstats.Count, which string) string {
	if n == backend.Unknown {
		return "an unknown number of events " + which
	}
	return plural.Of(int64(n), "event") + " " + which
}

// userName returns the login name of the user who runs the command, or "".
func userName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// groupsText returns a number of groups as text.
func groupsText(n groupstats.Count) string {
	if n == backend.Unknown {
		return "an unknown number of groups"
	}
	return plural.Of(int64(n), "group")
}
