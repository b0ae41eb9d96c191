// Package moment reads times that people write.
package moment

import (
	"strconv"
	"strings"
	"time"
)

// Parse returns the time that s stands for: a time of RFC 3339, or a duration before now, such
// as "90m ago" or "2d ago". A day has 24 hours.
func Parse(s string, now time.Time) (time.Time, bool) {
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
