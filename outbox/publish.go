package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// An Execer executes statements: a *sql.Tx, or a *sql.Conn in which the program has begun a
// transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// In returns a publisher that stores events in the outbox, as part of the transaction tx. Its
// Publish checks all events as the Publish of a bus does, and inserts none if one of them is
// wrong. The error is then an *eventbus.FieldError. After another error the program rolls tx
// back, because some of the events may be inserted.
//
// An event without ID or Time is stored with a new ID or the present time, and the publisher
// leaves the *Event as it is. The publisher is as safe for concurrent use as tx.
//
// A transaction should publish after the statements that lock its rows. Then events of a
// key are published in the order in which transactions locked the row of the key.
func (o *Outbox) In(tx Execer) eventbus.Publisher {
	return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		if tx == nil {
			return &eventbus.FieldError{Field: "tx", Reason: "is nil"}
		}
		rows := make([]row, len(events))
		for i, e := range events {
			if err := rows[i].fill(topic, e, o.options.Service); err != nil {
				return inEvents(i, err)
			}
		}
		for len(rows) > 0 {
			n := insertable(rows)
			if _, err := o.insert(rows[:n]).exec(ctx, tx); err != nil {
				return o.failed("insert into", err)
			}
			rows = rows[n:]
		}
		return nil
	})
}

// inEvents makes the field of err name the event i, as the Publish of a bus does.
func inEvents(i int, err error) error {
	f, ok := errors.AsType[*eventbus.FieldError](err)
	switch {
	case !ok, f.Field == "topic":
		return err
	case f.Field == "event":
		f.Field = fmt.Sprintf("events[%d]", i)
	default:
		f.Field = fmt.Sprintf("events[%d].%s", i, f.Field)
	}
	return err
}

// A row is an event in the database.
type row struct {
	number           int64 // the primary key; zero before the insertion
	topic            string
	id, key, payload []byte
	headers          []byte // a JSON object
}

// fill makes r the row that stores e.
func (r *row) fill(topic string, e *eventbus.Event, service string) error {
	if e != nil && e.Source == "" && service != "" {
		named := *e
		named.Source = service
		e = &named
	}
	m, err := eventbus.MessageOf(topic, e)
	if err != nil {
		return err
	}
	headers := make(map[string]string, len(m.Headers))
	for _, h := range m.Headers {
		headers[h.Name] = h.Value
	}
	if r.headers, err = json.Marshal(headers); err != nil {
		return err
	}
	r.topic, r.id, r.key, r.payload = topic, []byte(m.ID), []byte(m.Key), m.Payload
	if r.payload == nil { // nil would be NULL
		r.payload = []byte{}
	}
	return nil
}

// event returns the event that r stores. If another program has written headers that are no
// JSON object of texts, the error is an *eventbus.FieldError.
func (r *row) event() (*eventbus.Event, error) {
	m := backend.Message{Topic: r.topic, ID: string(r.id), Key: string(r.key), Payload: r.payload}
	var headers map[string]string
	if err := json.Unmarshal(r.headers, &headers); err != nil {
		return nil, &eventbus.FieldError{Field: "headers", Reason: "are no JSON object of texts: " + err.Error()}
	}
	m.Headers = make(backend.Headers, 0, len(headers))
	for name, value := range headers {
		m.Headers = append(m.Headers, backend.Header{Name: name, Value: value})
	}
	e := eventbus.EventOf(&m)
	return &e, nil
}

func (r *row) size() int {
	return len(r.payload) + len(r.headers) + len(r.id) + len(r.key)
}

const (
	mostInserted      = 100     // rows of one INSERT; drivers keep a statement for each number of rows
	mostInsertedBytes = 2 << 20 // of one INSERT, so that it fits into max_allowed_packet
)

// insertable returns how many of rows fit into one INSERT, at least one.
func insertable(rows []row) int {
	size := 0
	for i := range min(len(rows), mostInserted) {
		if size += rows[i].size(); i > 0 && size > mostInsertedBytes {
			return i
		}
	}
	return min(len(rows), mostInserted)
}

func (o *Outbox) insert(rows []row) *statement {
	s := o.d.statement("INSERT INTO ", o.tables.waiting, " (topic, event_id, event_key, headers, payload, created) VALUES ")
	for i := range rows {
		if i > 0 {
			s.add(", ")
		}
		r := &rows[i]
		s.add("(").arg(r.topic).add(", ").arg(r.id).add(", ").arg(r.key).add(", ").
			arg(string(r.headers)).add(", ").arg(r.payload).add(", ", o.d.now, ")")
	}
	return s
}
