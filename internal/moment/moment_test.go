package moment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	now := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-11-20T10:00:00Z": time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		"90m ago":              now.Add(-90 * time.Minute),
		"1h30m ago":            now.Add(-90 * time.Minute),
		"2d ago":               now.Add(-48 * time.Hour),
	} {
		got, ok := Parse(text, now)
		require.True(t, ok, text)
		require.True(t, want.Equal(got), "%s: %s", text, got)
	}
	for _, text := range []string{"", "ago", " ago", "2h", "-2h ago", "yesterday", "2026-11-20", "xd ago", "-1d ago", "99999999d ago"} {
		_, ok := Parse(text, now)
		require.False(t, ok, text)
	}
}
