package console

import (
	"net/url"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// A row is an event in a list. It keeps no payload and no memory of the message.
type row struct {
	Position string
	From     backend.Start // a place before the event and behind the one before
	ID       string
	Type     string
	Key      string
	Time     time.Time
	Source   string
	Size     int // bytes of the payload
	Preview  string
	Reason   string // of a dead letter
	Group    string // of a dead letter
	Error    string // of a dead letter
}

func newRow(redact groupstats.Redact, m *backend.Message, from backend.Start) row {
	e := redact.EventOf(m)
	return rowOf(&e, from)
}

func rowOf(e *eventbus.Event, from backend.Start) row {
	r := row{
		Position: strings.Clone(e.Position), From: from, ID: strings.Clone(e.ID), Type: short(e.Type), Key: strings.Clone(e.Key),
		Time: e.Time, Source: short(e.Source), Size: len(e.Payload), Preview: preview(e.Payload),
	}
	if why, ok := eventbus.DeadLetterOf(e); ok {
		r.ID, r.Reason, r.Group, r.Error = strings.Clone(why.ID), short(why.Reason), short(why.Group), short(why.Error)
	}
	return r
}

func preview(payload []byte) string {
	if !isText(payload) {
		return "(binary)"
	}
	return short(string(payload[:min(len(payload), 4*mostShort)]))
}

// link returns the URL of the event in topic.
func (r *row) link(topic string) string {
	return "event?" + url.Values{"topic": {topic}, "from": {string(r.From)}, "at": {r.Position}}.Encode()
}
