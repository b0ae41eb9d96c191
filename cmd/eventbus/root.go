package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus/backend"
)

const rootHelp = `Publish, consume and look around on any backend, from a shell.

The backend is given by --url or by EVENTBUS_URL, which keeps a password in it out
of the list of processes. An error is one line on standard error, and exit code 1.`

func newRoot(drivers []backend.Driver) *cobra.Command {
	root := &cobra.Command{
		Use:           "eventbus",
		Short:         "A pluggable event bus for Go services",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	asJSON := root.PersistentFlags().Bool("json", false, "print JSON")
	root.AddCommand(
		newPub(drivers, asJSON), newSub(drivers, asJSON), newWork(drivers, asJSON), newTail(drivers),
		newSchedule(drivers, asJSON), newServe(drivers), newTop(drivers, asJSON), newDoctor(drivers, asJSON), newProcesses(drivers, asJSON), newTopics(drivers, asJSON), newGroups(drivers, asJSON), newDLQ(drivers, asJSON), newPing(drivers, asJSON),
		newConfig(drivers, asJSON), newDemo(drivers, asJSON), newVersion(asJSON),
	)
	return root
}

func writeJSON(w io.Writer, v any) error {
	to := json.NewEncoder(w)
	to.SetIndent("", "  ")
	return to.Encode(v)
}

// topics checks that a command's arguments are between least and most topics. A negative
// most is no bound.
func topics(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			if strings.Contains(arg, "://") {
				return fmt.Errorf("%s: a URL is given with --url", cmd.Name())
			}
		}
		switch {
		case len(args) < least:
			return fmt.Errorf("%s: needs a topic: %s", cmd.Name(), cmd.UseLine())
		case most >= 0 && len(args) > most:
			return fmt.Errorf("%s: unexpected argument %q", cmd.Name(), args[most])
		}
		for _, arg := range args {
			if err := backend.CheckName(arg); err != nil {
				return fmt.Errorf("%s: topic %w", cmd.Name(), err)
			}
		}
		return nil
	}
}

// filled returns an error if one of the flags was given an empty value, because a shell
// variable without a value must not mean the default.
func filled(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	return nil
}

// choose returns the value that a flag's text names.
func choose[T any](flag, value string, choices []choice[T]) (T, error) {
	names := make([]string, len(choices))
	for i, c := range choices {
		if c.name == value {
			return c.value, nil
		}
		names[i] = c.name
	}
	var none T
	return none, fmt.Errorf("--%s is %q, not one of %s", flag, value, strings.Join(names, ", "))
}

// A choice is one of the values that a flag may have.
type choice[T any] struct {
	name  string
	value T
}

// complete lets a shell complete the values of a flag.
func complete[T any](cmd *cobra.Command, flag string, choices []choice[T]) {
	names := make([]string, len(choices))
	for i, c := range choices {
		names[i] = c.name
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}
