package operator

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Timestamp parses a time of RFC 3339, or a duration before now such as "90m ago" or "2d ago". A day has 24 hours.
func Timestamp(s string, now time.Time) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, true
	}
	ago, ok := strings.CutSuffix(s, " ago")
	if !ok {
		return time.Time{}, false
	}
	if days, ok := strings.CutSuffix(ago, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return now.Add(-time.Duration(n) * 24 * time.Hour), err == nil
	}
	d, err := time.ParseDuration(ago)
	return now.Add(-d), err == nil && d >= 0
}

// Time parses a time: a [Timestamp], or a bare duration such as "2h", which counts back from now, or forward if
// ahead is set.
func Time(text string, ahead bool) (time.Time, error) {
	if t, ok := Timestamp(text, time.Now()); ok {
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

// End parses when a pause ends: a time in the future, or a duration from now. The empty text means never and
// returns the zero time.
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
