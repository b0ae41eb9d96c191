package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// An Inbox recognizes redelivered events in the transaction in which a handler does its work, so
// that the work is done once per ID, however often the event is published and delivered.
type Inbox struct {
	o  *Outbox
	tx Execer
}

// Inbox returns the inbox for one run of a handler. tx is the transaction of the handler's work, in
// the database of o.
func (o *Outbox) Inbox(tx Execer) Inbox { return Inbox{o, tx} }

// First reports whether the group of d gets the event of d for the first time, and records its ID
// as part of the transaction. If First returns false, a committed transaction has already done the
// work, so the handler should return nil. If the transaction is rolled back, the event counts as
// new again. A second transaction with the same event waits in First until the first one has ended.
//
// After an error, roll back and return the error. An event without an ID is always new, and events
// of one topic with the same ID are the same event.
func (i Inbox) First(ctx context.Context, d *eventbus.Delivery) (bool, error) {
	if d.ID == "" {
		return true, nil
	}
	// InnoDB would truncate a longer text, and confuse it with another one.
	if len(d.ID) > mostText || len(d.Topic) > backend.MaxName || len(d.Group) > backend.MaxName {
		return false, &eventbus.FieldError{Field: "Delivery", Reason: "has an ID, a topic or a group that is too long", Err: eventbus.ErrTooLarge}
	}
	o := i.o
	s := o.d.statement(o.d.ignore, " ", o.tables.inbox, " (topic, member_group, event_id, created) VALUES (").
		arg(d.Topic).add(", ").arg(d.Group).add(", ").arg([]byte(d.ID)).add(", ", o.d.now, ")", o.d.skip)
	result, err := s.exec(ctx, i.tx)
	if err != nil {
		return false, o.failed("insert into the inbox of", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, o.failed("insert into the inbox of", err)
	}
	return n > 0, nil
}

const (
	mostText  = 512  // bytes of an ID
	mostPurge = 1000 // rows of one transaction
)

// PurgeInbox forgets deliveries that were handled longer than age ago, in transactions of 1,000
// rows, and returns how many. An event that is redelivered after that counts as new, so choose an
// age beyond the longest retry and redrive. Call it from time to time; concurrent calls are safe.
func (o *Outbox) PurgeInbox(ctx context.Context, age time.Duration) (n int, err error) {
	if age < 0 {
		return 0, &eventbus.FieldError{Field: "age", Reason: fmt.Sprintf("is %v, which is negative", age)}
	}
	for {
		var gone int64
		err := o.begin(ctx, o.d.write, func(tx *sql.Tx) error {
			result, err := o.purge(age).exec(ctx, tx)
			if err == nil {
				gone, err = result.RowsAffected()
			}
			return err
		})
		if err != nil {
			return n, o.failed("purge the inbox of", err)
		}
		n += int(gone)
		if gone < mostPurge {
			return n, nil
		}
	}
}

func (o *Outbox) purge(age time.Duration) *statement {
	s := o.d.statement("DELETE FROM ", o.tables.inbox, " WHERE ")
	row := map[Dialect]string{Postgres: "ctid", SQLite: "rowid"}[o.d.name]
	if row != "" {
		s.add(row, " IN (SELECT ", row, " FROM ", o.tables.inbox, " WHERE ")
	}
	s.add("created <= ", o.d.now, " - ").arg(age.Milliseconds()).add(" ORDER BY created LIMIT ", itoa(mostPurge))
	if row != "" {
		s.add(")")
	}
	return s
}
