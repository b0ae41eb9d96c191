package main

import (
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/operator"
)

const startUsage = "earliest, latest, a time, 2h ago, or the `position` after which to begin"

// parseStart returns the Start that the value of a flag names.
func parseStart(flag, text string) (eventbus.Start, error) {
	start, err := operator.Start(text)
	return start, namedFlag(flag, err)
}

// parseTime returns the time that the value of a flag names: a time, or a duration before the
// present time.
func parseTime(flag, text string) (time.Time, error) {
	t, err := operator.Time(text, false)
	return t, namedFlag(flag, err)
}

// namedFlag returns an error with the flag whose value is wrong.
func namedFlag(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s %w", flag, err)
}
