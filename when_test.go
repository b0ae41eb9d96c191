package eventbus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every day of some centuries is read as package time reads it.
func TestDaysAreRead(t *testing.T) {
	for at := time.Date(1, 1, 1, 13, 59, 7, 120_000_000, time.UTC); at.Year() < 2500; at = at.AddDate(0, 0, 1) {
		got, err := parseTime(at.Format(time.RFC3339Nano))
		if err != nil || got != at {
			require.Equal(t, at, got, "error %v", err)
		}
	}
}

// FuzzTime: whatever the text, it is read as package time reads it.
func FuzzTime(f *testing.F) {
	for _, s := range []string{
		"2026-11-21T18:53:31.123456789Z", "2026-11-21T18:53:31Z", "2026-11-21T18:53:31.5Z", "2024-02-29T00:00:00Z", "2026-02-29T00:00:00Z",
		"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-11-21T24:00:00Z", "2026-11-31T00:00:00Z",
		"2026-11-21T18:53:60Z", "2026-11-21T18:53:31.Z", "2026-11-21T18:53:31,5Z", "2026-11-21T18:53:31+01:00", "2026-11-21T18:53:31.1234567891Z",
		"2026-11-21t18:53:31Z", "2026-1-21T18:53:31Z", "", "Z", "-026-11-21T18:53:31Z", "20:6-11-21T18:53:31Z", "2026-11-21T18:53:3/Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, wantErr := time.Parse(time.RFC3339Nano, s)
		got, err := parseTime(s)
		require.Equal(t, wantErr == nil, err == nil, "error %v", err)
		require.True(t, want.Equal(got), "want %v, got %v", want, got)
		if wantErr == nil && want.Location() == time.UTC {
			require.Equal(t, want, got)
		}
	})
}

func BenchmarkParseTime(b *testing.B) {
	for b.Loop() {
		_, _ = parseTime("2026-11-21T18:53:31.123456789Z")
	}
}
