package operator

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/moment"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// Start returns the Start that an operator means: "earliest", "latest", a time, a duration before the
// present time such as "2h ago", or the position after which to begin, also as "after POSITION".
func Start(text string) (backend.Start, error) {
	switch text {
	case "":
		return "", errors.New("is empty")
	case "earliest":
		return backend.StartEarliest, nil
	case "latest":
		return backend.StartLatest, nil
	}
	if t, ok := moment.Parse(text, time.Now()); ok {
		return backend.StartAt(t), nil
	}
	if hint := nearest.Hint("%s", text, []string{"earliest", "latest"}); hint != "" {
		return "", fmt.Errorf("%q is not a position%s", text, hint)
	}
	return backend.StartAfter(strings.TrimSpace(strings.TrimPrefix(text, "after "))), nil
}

// Time returns the time that an operator means: a time, or a duration before the present time or, if
// ahead is set, after it.
func Time(text string, ahead bool) (time.Time, error) {
	if t, ok := moment.Parse(text, time.Now()); ok {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, fmt.Errorf("is %q, want a time such as %s, or a duration such as 2h", text, time.Now().UTC().Format(time.RFC3339))
	}
	if ahead {
		return time.Now().Add(d), nil
	}
	return time.Now().Add(-d), nil
}

// End returns the end of a pause that an operator means: a time that has not passed, or a duration
// from now. Empty: the zero time, which means never.
func End(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := Time(text, true)
	if err == nil && !t.After(time.Now()) {
		err = fmt.Errorf("%s has passed", text)
	}
	return t, err
}
