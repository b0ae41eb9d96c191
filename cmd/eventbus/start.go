package main

import (
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/moment"
	"github.com/seed41896749/eventbus/internal/nearest"
)

const startUsage = "earliest, latest, a time, 2h ago, or the `position` after which to begin"

// parseStart returns the Start that the value of a flag names.
func parseStart(flag, text string) (eventbus.Start, error) {
	switch text {
	case "":
		return "", fmt.Errorf("--%s is empty", flag)
	case "earliest":
		return eventbus.StartEarliest, nil
	case "latest":
		return eventbus.StartLatest, nil
	}
	if t, ok := moment.Parse(text, time.Now()); ok {
		return eventbus.StartAt(t), nil
	}
	if hint := nearest.Hint("%s", text, []string{"earliest", "latest"}); hint != "" {
		return "", fmt.Errorf("--%s %q is not a position%s", flag, text, hint)
	}
	return backend.StartAfter(text), nil
}

// parseTime returns the time that the value of a flag names: a time, or a duration before the
// present time or, if ahead is set, after it.
func parseTime(flag, text string, ahead bool) (time.Time, error) {
	if t, ok := moment.Parse(text, time.Now()); ok {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, fmt.Errorf("--%s is %q, want a time such as %s, or a duration such as 2h", flag, text, time.Now().UTC().Format(time.RFC3339))
	}
	if ahead {
		return time.Now().Add(d), nil
	}
	return time.Now().Add(-d), nil
}
