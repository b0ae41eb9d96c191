package later

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A time of a fixed hour keeps the hour of its zone. A time that a change to daylight saving
// time skips comes an hour later, and a time that comes twice counts once. A time of every
// hour comes each hour.
func TestZones(t *testing.T) {
	for _, row := range []struct {
		cron, zone, from string
		want             []string
	}{
		{"30 8 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", []string{"2026-03-28T07:30:00Z", "2026-03-29T06:30:00Z", "2026-03-30T06:30:00Z"}},
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", []string{"2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z", []string{"2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"}},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z", []string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
		{"@hourly", "", "2026-10-24T23:45:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"}},
		{"0 0 29 2 *", "", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		{"0 0 30 2 *", "", "2026-01-01T00:00:00Z", []string{"0001-01-01T00:00:00Z"}},
	} {
		p := Plan{Cron: row.cron, Zone: row.zone}
		times, err := p.times()
		require.NoError(t, err, row)
		at, err := time.Parse(time.RFC3339, row.from)
		require.NoError(t, err)
		var got []string
		for range row.want {
			at = times.Next(at)
			got = append(got, at.UTC().Format(time.RFC3339))
		}
		require.Equal(t, row.want, got, "%s in %q", row.cron, row.zone)
	}
}

// Intervals are counted from Since, however long nobody has asked.
func TestIntervals(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := Plan{Every: time.Minute, Since: since}
	times, err := p.times()
	require.NoError(t, err)
	for after, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Minute, 0: time.Minute, 59 * time.Second: time.Minute, time.Minute: 2 * time.Minute, 1000*time.Hour + time.Second: 1000*time.Hour + time.Minute,
	} {
		require.Equal(t, since.Add(want), times.Next(since.Add(after)), after)
	}
}
