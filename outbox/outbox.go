// Package outbox stores events in the program's own SQL database, in the transaction that
// changes its rows. A relay publishes them later. So an event is published if and only if
// its transaction has committed.
//
//	ob, err := outbox.New(db, outbox.Postgres, outbox.Options{Service: "shop"})
//	…
//	tx, err := db.BeginTx(ctx, nil)
//	_, err = tx.ExecContext(ctx, "UPDATE orders SET paid = true WHERE id = $1", order)
//	err = purchases.Publish(ctx, ob.In(tx), Purchase{order})
//	err = tx.Commit()
//
// Each process of the service also calls [Outbox.Relay], in a goroutine of its own. One relay
// at a time publishes the committed rows to a bus, and deletes them. The other relays stand
// by.
//
// # Order
//
// Events of a topic and key are published in the order of their commits, if each transaction
// inserts its event after the earlier one has committed. A transaction that locks the row of
// the key before it publishes does so. The order of transactions that overlap, and see
// nothing of each other, is not defined. A number from a sequence has no say in this: a
// relay that reads a later number first publishes it first.
//
// # Doubles
//
// A row is published at least once, each time with the same ID. It is published again if
// the relay ends between Publish and the deletion of the row, or if the outcome of Publish
// is unknown. A bus with eventbus.Options.Dedup drops such doubles within the window of its
// broker. A handler that works in a SQL database recognizes them for longer, by
// [Outbox.Inbox].
//
// Doubles never change the order of the first occurrences of a key.
//
// # Failures
//
// The relay tries again, with growing delays, if the database or the bus fails. A topic that
// cannot be published waits, and rows of other topics go on. An event that the bus refuses
// for good is set aside with its reason: see [Outbox.Refused], [Outbox.Retry] and
// [Outbox.Discard].
//
// # Tables
//
// [Schema] returns the statements that create the tables. The command of folder cmd/outbox
// prints them. The program applies them with its other migrations.
package outbox

import (
	"cmp"
	"database/sql"
	"fmt"
	"regexp"
	"time"

	"github.com/seed41896749/eventbus"
)

// DefaultTable is the name of the table if Options.Table is empty.
const DefaultTable = "eventbus_outbox"

// Options are the settings of an [Outbox]. A zero field means its default.
type Options struct {
	// Table names the table of waiting events, perhaps with a schema, such as
	// "shop.outbox". The names of the other tables begin with it, see [Schema]. Each part
	// is a letter or an underscore, and then letters, digits and underscores, of at most
	// 40 bytes. Default [DefaultTable].
	Table string

	// Service is the Source of events that have none. Default: the relay's bus sets the
	// Source, to its own eventbus.Options.Service.
	Service string

	// Poll is how long the relay waits after it has found no rows. It waits longer if a
	// read takes more than half of Poll, so that an idle relay does not load the database.
	// Default 100 ms.
	Poll time.Duration

	// Batch is the most rows of one read. A read ends after 8 MiB, so large rows make it
	// smaller. If reads take longer than 50 ms, a read may have up to 10,000 rows. Default
	// 1000.
	Batch int

	// Lease is how long a relay that does not renew its lease stays the active one. After a
	// crash of the active relay another one takes over within Lease. At least 1 s.
	// Default 10 s.
	Lease time.Duration

	// OnFailure is called after each failed call of a relay to the database or the bus, and
	// for a panic of OnRefused. The relay tries again. Calls may be concurrent, and the
	// relay waits for them. A nil OnFailure logs a warning with slog.Default().
	OnFailure func(Failure)

	// OnRefused is called for each event that was set aside, because the bus refused it for
	// good. The relay waits for it. A nil OnRefused logs an error with slog.Default().
	OnRefused func(Refused)

	// OnActive is called when a relay becomes the active one (true), and when it ends or
	// has lost its lease (false). A nil OnActive logs with slog.Default().
	OnActive func(active bool)
}

func (o Options) withDefaults() Options {
	o.Table = cmp.Or(o.Table, DefaultTable)
	o.Poll = cmp.Or(o.Poll, 100*time.Millisecond)
	o.Batch = cmp.Or(o.Batch, 1000)
	o.Lease = cmp.Or(o.Lease, 10*time.Second)
	return o
}

// leastLease is the shortest Options.Lease. A shorter one would be lost on a busy machine.
const leastLease = time.Second

// mostBatch is the largest Options.Batch. It bounds the length of a statement that deletes
// rows.
const mostBatch = 10_000

func (o Options) check() error {
	switch {
	case o.Poll < 0:
		return &eventbus.FieldError{Field: "Options.Poll", Reason: "is negative"}
	case o.Batch < 0 || o.Batch > mostBatch:
		return &eventbus.FieldError{Field: "Options.Batch", Reason: fmt.Sprintf("is %d, not in 1 to %d", o.Batch, mostBatch)}
	case o.Lease < leastLease:
		return &eventbus.FieldError{Field: "Options.Lease", Reason: fmt.Sprintf("is %v, less than %v", o.Lease, leastLease)}
	}
	_, err := eventbus.MessageOf("topic", &eventbus.Event{Source: o.Service})
	if err != nil {
		return &eventbus.FieldError{Field: "Options.Service", Reason: "cannot be a Source", Err: err}
	}
	return checkTable(o.Table)
}

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,39}\.)?[A-Za-z_][A-Za-z0-9_]{0,39}$`)

func checkTable(name string) error {
	if !tableName.MatchString(name) {
		return &eventbus.FieldError{Field: "Options.Table", Reason: fmt.Sprintf(
			"is %q; allowed are letters, digits and '_' after a letter or '_', perhaps after a schema and a dot", name)}
	}
	return nil
}

// An Outbox is the outbox of one database. Its methods are safe for concurrent use. It has no
// goroutines but the ones of its calls of Relay.
type Outbox struct {
	db      *sql.DB
	d       *dialect
	options Options
	tables  tables
	report  reporter
}

// New returns the outbox in db. It asks no database, so the tables may be created later. If a
// field of o is wrong, the error is an *eventbus.FieldError. The program closes db, after its
// calls of Relay have returned.
func New(db *sql.DB, dialect Dialect, o Options) (*Outbox, error) {
	d, err := dialectOf(dialect)
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, &eventbus.FieldError{Field: "db", Reason: "is nil"}
	}
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	ob := &Outbox{db: db, d: d, options: o, tables: d.tables(o.Table)}
	ob.report.options = &ob.options
	return ob, nil
}

// failed returns the error of an operation on the database.
func (o *Outbox) failed(op string, err error) error {
	return fmt.Errorf("outbox: %s %s: %w", op, o.options.Table, err)
}
