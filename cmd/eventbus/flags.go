package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/operator"
)

const startUsage = "earliest, latest, a time, 2h ago, or the `position` after which to begin"

// parseStart returns the Start that the value of a flag names.
func parseStart(flag, text string) (eventbus.Start, error) {
	start, err := operator.Start(text)
	return start, namedFlag(flag, err)
}

// parseTime returns the time that the value of a flag names: a time, or a duration before now.
func parseTime(flag, text string) (time.Time, error) {
	t, err := operator.Time(text, false)
	return t, namedFlag(flag, err)
}

// namedFlag adds the name of the flag to the error about its value.
func namedFlag(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s %w", flag, err)
}

// topicArgs checks that a command has between least and most arguments, all of them topics. A negative most means any
// number.
func topicArgs(least, most int) cobra.PositionalArgs {
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

// filled returns an error if one of the flags was given an empty value: an unset shell variable must not mean the
// default.
func filled(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	return nil
}

// choose returns the value of the choice that a flag names.
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

// A choice is one of the words that a flag accepts, and its value.
type choice[T any] struct {
	name  string
	value T
}

// choicesOf returns the choices for some values of an enum of package eventbus, by their texts.
func choicesOf[T fmt.Stringer](values ...T) []choice[T] {
	choices := make([]choice[T], len(values))
	for i, v := range values {
		choices[i] = choice[T]{v.String(), v}
	}
	return choices
}

// complete lets a shell complete the values of a flag.
func complete[T any](cmd *cobra.Command, flag string, choices []choice[T]) {
	names := make([]string, len(choices))
	for i, c := range choices {
		names[i] = c.name
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}
