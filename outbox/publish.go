package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus"
)

// An Execer executes statements: a *sql.Tx, or a *sql.Conn on which you have begun a transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// In returns a publisher that stores events in the outbox as part of the transaction tx. Publish
// after the statements that lock your rows: events of a key are then published in the order in
// which transactions locked the row of the key.
//
// Publish validates all events as the Publish of a bus does. If one of them is invalid, it inserts
// none, and the error is an *eventbus.FieldError. After any other error roll tx back, because some
// of the events may be inserted.
//
// An event without an ID or Time is stored with a new ID or the current time; the *Event itself is
// not changed. The publisher is as safe for concurrent use as tx.
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

const (
	mostInserted      = 100     // rows per INSERT; drivers cache a statement for each number of rows
	mostInsertedBytes = 2 << 20 // per INSERT, so that it fits into max_allowed_packet
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
