package outbox

import (
	"context"
	"database/sql"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed41896749/eventbus"
)

// A Refused is an event that the bus refused for good.
type Refused struct {
	Number int64 // identifies the event in calls of Retry and Discard
	Topic  string
	Event  eventbus.Event // has only ID, Key and Payload if the headers are unreadable
	Reason string         // the text of the error, at most 1,000 bytes
	At     time.Time      // when it was set aside; zero in calls of Options.OnRefused
}

const mostReason = 1000 // bytes

// columns are those that both tables of events have, except for the time.
const columns = "topic, event_id, event_key, headers, payload"

// setAside moves a row to the refused events. It does nothing if another relay has moved it.
func (o *Outbox) setAside(ctx context.Context, r refusal) (Refused, error) {
	aside := newRefused(r.row, reasonText(r.err))
	err := o.begin(ctx, o.d.write, func(tx *sql.Tx) error {
		move := o.d.statement(o.d.ignore, " ", o.tables.refused, " (id, ", columns, ", created, refused, reason) SELECT id, ", columns,
			", created, ", o.d.now, ", ").arg(aside.Reason).add(" FROM ", o.tables.waiting, " WHERE ").ids("id", []int64{r.row.number}).add(o.d.skip)
		if _, err := move.exec(ctx, tx); err != nil {
			return err
		}
		_, err := o.d.deleteIDs(o.tables.waiting, []int64{r.row.number}).exec(ctx, tx)
		return err
	})
	return aside, err
}

func newRefused(r *row, reason string) Refused {
	e, err := r.event()
	if err != nil {
		e = &eventbus.Event{ID: string(r.id), Key: string(r.key), Payload: r.payload}
	}
	return Refused{Number: r.number, Topic: r.topic, Event: *e, Reason: reason}
}

// reasonText returns the text of err in a form that every database can store.
func reasonText(err error) string {
	text := err.Error()
	if len(text) > mostReason {
		text = text[:mostReason]
	}
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	return strings.ReplaceAll(text, "\x00", string(utf8.RuneError))
}

const page = 100 // refused events per read

// Refused yields the refused events in the order in which they were inserted. It ends after an
// error. Events may be added and removed in the meantime.
func (o *Outbox) Refused(ctx context.Context) iter.Seq2[Refused, error] {
	return func(yield func(Refused, error) bool) {
		for last := int64(0); ; {
			found, err := o.refusedPage(ctx, last)
			if err != nil {
				yield(Refused{}, o.failed("list refused events of", err))
				return
			}
			for _, r := range found {
				if !yield(r, nil) {
					return
				}
				last = r.Number
			}
			if len(found) == 0 {
				return
			}
		}
	}
}

func (o *Outbox) refusedPage(ctx context.Context, last int64) (found []Refused, err error) {
	s := o.d.statement("SELECT id, ", columns, ", refused, reason FROM ", o.tables.refused, " WHERE id > ").arg(last).
		add(" ORDER BY id LIMIT ", itoa(page))
	rows, err := s.query(ctx, o.db)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for size := 0; size < mostRead && rows.Next(); {
		var w row
		var at int64
		var reason string
		if err := rows.Scan(&w.number, &w.topic, &w.id, &w.key, &w.headers, &w.payload, &at, &reason); err != nil {
			return nil, err
		}
		r := newRefused(&w, reason)
		r.At = time.UnixMilli(at)
		found, size = append(found, r), size+w.size()
	}
	return found, rows.Err()
}

// Retry queues refused events again under new numbers, and returns how many. They are published
// after all events of their keys that are waiting now. Numbers of events that are not refused are
// ignored. Concurrent calls are safe.
func (o *Outbox) Retry(ctx context.Context, numbers ...int64) (n int, err error) {
	for len(numbers) > 0 && err == nil {
		some := numbers[:min(len(numbers), mostBatch)]
		numbers = numbers[len(some):]
		var moved int
		if moved, err = o.retry(ctx, some); err == nil {
			n += moved
		}
	}
	if err != nil {
		return n, o.failed("retry refused events of", err)
	}
	return n, nil
}

func (o *Outbox) retry(ctx context.Context, numbers []int64) (n int, err error) {
	err = o.begin(ctx, o.d.write, func(tx *sql.Tx) error {
		if o.d.lock != "" { // a concurrent call then moves none of these rows
			if numbers, err = o.locked(ctx, tx, numbers); err != nil || len(numbers) == 0 {
				return err
			}
		}
		move := o.d.statement("INSERT INTO ", o.tables.waiting, " (", columns, ", created) SELECT ", columns, ", ", o.d.now,
			" FROM ", o.tables.refused, " WHERE ").ids("id", numbers).add(" ORDER BY id")
		result, err := move.exec(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := o.d.deleteIDs(o.tables.refused, numbers).exec(ctx, tx); err != nil {
			return err
		}
		moved, err := result.RowsAffected()
		n = int(moved)
		return err
	})
	return n, err
}

// locked locks refused events, and returns the numbers of those that exist.
func (o *Outbox) locked(ctx context.Context, tx *sql.Tx, numbers []int64) (found []int64, err error) {
	s := o.d.statement("SELECT id FROM ", o.tables.refused, " WHERE ").ids("id", numbers).add(" ORDER BY id", o.d.lock)
	rows, err := s.query(ctx, tx)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var number int64
		if err := rows.Scan(&number); err != nil {
			return nil, err
		}
		found = append(found, number)
	}
	return found, rows.Err()
}

// Discard deletes refused events permanently, and returns how many.
func (o *Outbox) Discard(ctx context.Context, numbers ...int64) (n int, err error) {
	for len(numbers) > 0 {
		some := numbers[:min(len(numbers), mostBatch)]
		numbers = numbers[len(some):]
		result, err := o.d.deleteIDs(o.tables.refused, some).exec(ctx, o.db)
		if err != nil {
			return n, o.failed("discard refused events of", err)
		}
		gone, err := result.RowsAffected()
		if err != nil {
			return n, o.failed("discard refused events of", err)
		}
		n += int(gone)
	}
	return n, nil
}
