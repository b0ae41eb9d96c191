package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/config"
	"github.com/seed41896749/eventbus/inmemory"
)

// Open stores the recurring entries of the file, with all of their keys.
func TestSchedules(t *testing.T) {
	c, err := config.Parse("f", []byte(`
bus:
  url: "mem:"
  schedules:
    nightly: {topic: reports, cron: "0 3 * * *", zone: Europe/Berlin, missed: all, max_missed: 3, type: due, key: k, data: '{"a":1}'}
    tick: {topic: reports, every: 90s, data: text}
`), nil)
	require.NoError(t, err)
	nightly := eventbus.Recurring{
		ID: "nightly", Topic: "reports", Cron: "0 3 * * *", Zone: "Europe/Berlin", Missed: eventbus.FireAll, MaxMissed: 3,
		Event: eventbus.Event{Type: "due", Key: "k", ContentType: "application/json", Payload: []byte(`{"a":1}`)},
	}
	tick := eventbus.Recurring{ID: "tick", Topic: "reports", Every: 90 * time.Second, Event: eventbus.Event{ContentType: "text/plain; charset=utf-8", Payload: []byte("text")}}
	require.Equal(t, []eventbus.Recurring{nightly, tick}, c.Recurring())
	bus, err := c.Open(t.Context(), nil, inmemory.Driver{})
	require.NoError(t, err)
	defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
	states, err := bus.RecurringEntries(t.Context(), "reports")
	require.NoError(t, err)
	require.Len(t, states, 2)
	require.Equal(t, "nightly", states[0].ID)
	require.Equal(t, 3, states[0].MaxMissed)
	require.Equal(t, 90*time.Second, states[1].Every)
}

func TestWrongSchedules(t *testing.T) {
	for want, entry := range map[string]string{
		"f:1:32: bus.schedules.a: Recurring has neither Every nor Cron":                "{topic: t}",
		`f:1:32: bus.schedules.a: Recurring has the Zone "Nowhere": unknown time zone`: "{topic: t, cron: '@daily', zone: Nowhere}",
		"bus.schedules.a.every: \"1ms\"":                                               "{topic: t, every: 1ms}",
		"bus.schedules.a":                                                              "{every: 1m}",
	} {
		_, err := config.Parse("f", []byte("bus: {url: 'mem:', schedules: {a: "+entry+"}}"), nil)
		require.ErrorContains(t, err, want)
	}
}
