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
			return c.located(schedulePath(r.ID), err)
		}
	}
	return nil
}

type schedule struct {
	Topic     name     `key:"topic" required:"true" example:"shop.reports" doc:"The topic of the events."`
	Every     duration `key:"every" min:"1s" example:"15m" doc:"The time between two events. Either every or cron is given."`
	Cron      text     `key:"cron" example:"0 3 * * *" doc:"The times of the events: five fields, or a descriptor such as @daily."`
	Zone      text     `key:"zone" example:"Europe/Berlin" doc:"The time zone of cron. Default: UTC."`
	Missed    missed   `key:"missed" example:"none" doc:"Which events to publish for times that were missed because no process was running: one for all of them (the default), none, or all."`
	MaxMissed number   `key:"max_missed" min:"1" example:"24" doc:"The most events that missed: all makes up for, the latest. Default: 1000."`
	Type      text     `key:"type" example:"report.due" doc:"The type of the events."`
	Key       text     `key:"key" example:"reports" doc:"The key of the events."`
	Data      text     `key:"data" example:"{}" doc:"The payload of the events. Its content type is that of JSON if it is JSON, else of text."`
}
