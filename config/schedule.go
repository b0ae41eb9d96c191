package config

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/seed41896749/eventbus"
)

func schedulePath(id string) string { return "bus.schedules." + id }

// Recurring returns the recurring entries of the file, sorted by ID.
func (c *Config) Recurring() (entries []eventbus.Recurring) {
	for _, id := range slices.Sorted(maps.Keys(c.bus.Schedules)) {
		entries = append(entries, c.bus.Schedules[id].entry(id))
	}
	return entries
}

func (s schedule) entry(id string) eventbus.Recurring {
	r := eventbus.Recurring{
		ID: id, Topic: string(s.Topic), Every: s.Every.value(), Cron: string(s.Cron), Zone: string(s.Zone),
		Missed: eventbus.Missed(s.Missed), MaxMissed: int(s.MaxMissed),
		Event: eventbus.Event{Type: string(s.Type), Key: string(s.Key), Payload: []byte(s.Data)},
	}
	switch {
	case s.Data == "":
	case json.Valid(r.Event.Payload):
		r.Event.ContentType = "application/json"
	default:
		r.Event.ContentType = "text/plain; charset=utf-8"
	}
	return r
}

// recur stores the recurring entries of the file in the broker.
func (c *Config) recur(ctx context.Context, bus *eventbus.Bus) error {
	for _, r := range c.Recurring() {
		if err := bus.Recur(ctx, r); err != nil {
			return c.placed(schedulePath(r.ID), err)
		}
	}
	return nil
}
