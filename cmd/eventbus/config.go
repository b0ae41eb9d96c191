package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/config"
)

func newConfig(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check configuration files of programs, and print their schema",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheck(drivers, asJSON), newConfigSchema())
	return cmd
}

const checkHelp = `Read a configuration file the way a program would, and explain the result in words,
defaults included. For each subscription it also says what that means in the worst
case: how long an event is tried, and how much may be held. No broker is needed.

The environment counts as it does for the program: ${VARIABLE} is replaced, and
url_file is read. Errors are on standard error, one per line with their position in the
file, and the exit code is then 1.`

func newConfigCheck(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Check a file, and explain the resulting options",
		Long:    checkHelp,
		Example: "  eventbus config check eventbus.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("config check: needs one file: eventbus config check FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(args[0])
			if err == nil {
				err = c.Check(cmd.Context(), drivers...)
			}
			if err != nil {
				return fmt.Errorf("config check: %w", badFile(cmd, err, args))
			}
			d, err := describe(c)
			switch {
			case err != nil:
				return fmt.Errorf("config check: %w", err)
			case *asJSON:
				return writeJSON(cmd.OutOrStdout(), d)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), d)
			return err
		},
	}
}

// badFile prints each error of a file on its own line, as compilers do, and returns an error with their number.
func badFile(cmd *cobra.Command, err error, args []string) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	errs := joined.Unwrap()
	for _, e := range errs {
		fmt.Fprintln(cmd.ErrOrStderr(), withoutURLs(e.Error(), args))
	}
	if len(errs) == 1 {
		return errors.New("1 error")
	}
	return fmt.Errorf("%d errors", len(errs))
}

// A description is the printed form of a valid file.
type description struct {
	Bus           string            `json:"bus"`
	Subscriptions map[string]string `json:"subscriptions"`
	names         []string
}

func describe(c *config.Config) (*description, error) {
	d := &description{Bus: c.Describe(), Subscriptions: map[string]string{}, names: c.Subscriptions()}
	for _, name := range d.names {
		words, err := c.DescribeSubscription(name)
		if err != nil {
			return nil, err
		}
		d.Subscriptions[name] = words
	}
	return d, nil
}

// String returns the description as text, one line for the bus and for each subscription.
func (d *description) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bus: %s\n", d.Bus)
	for _, name := range d.names {
		fmt.Fprintf(&b, "%s: %s\n", name, d.Subscriptions[name])
	}
	return b.String()
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema (draft 2020-12) of configuration files",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema())
			return err
		},
	}
}
