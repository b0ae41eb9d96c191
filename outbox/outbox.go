// Package outbox stores events in your program's own SQL database, in the same transaction that
// changes its rows. A relay publishes them afterwards, so an event is published if and only if its
// transaction commits.
//
//	ob, err := outbox.New(db, outbox.Postgres, outbox.Options{Service: "shop"})
//	…
//	tx, err := db.BeginTx(ctx, nil)
//	_, err = tx.ExecContext(ctx, "UPDATE orders SET paid = true WHERE id = $1", order)
//	err = purchases.Publish(ctx, ob.In(tx), Purchase{order})
//	err = tx.Commit()
//
// Each process of the service also calls [Outbox.Relay], in a goroutine of its own. One relay at a
// time publishes the committed rows to a bus and deletes them; the others stand by.
//
// # Order
//
// Events of a topic and key are published in the order of their commits, provided that each
// transaction inserts its event after the previous one has committed. That is the case if a
// transaction locks the row of the key before it publishes. Transactions that overlap without
// seeing each other have no defined order. Sequence numbers don't matter: if a relay reads a later
// number first, it publishes it first.
//
// # Duplicates
//
// Each row is published at least once, always with the same ID. It is published again if the relay
// ends between Publish and the deletion of the row, or if the outcome of Publish is unknown. A bus
// with eventbus.Options.Dedup drops such duplicates within the window of its broker. A handler that
// works in a SQL database can recognize them for longer, with [Outbox.Inbox]. Duplicates never
// change the order of the first occurrences of a key.
//
// # Failures
//
// If the database or the bus fails, the relay tries again with growing delays. A topic that cannot
// be published waits, while rows of other topics continue. An event that the bus refuses for good
// is set aside together with the reason: see [Outbox.Refused], [Outbox.Retry] and [Outbox.Discard].
//
// # Tables
//
// [Schema] returns the statements that create the tables, and the command cmd/outbox prints them.
// Apply them with your other migrations.
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
	// Table names the table of waiting events, optionally with a schema, such as "shop.outbox". The
	// names of the other tables begin with it; see [Schema]. Each part is a letter or an underscore
	// followed by letters, digits and underscores, at most 40 bytes in all. Default [DefaultTable].
	Table string

	// Service is the Source of events that have none. By default the relay's bus sets it, to its
	// own eventbus.Options.Service.
	Service string

	// Poll is how long the relay waits when it has found no rows. It waits longer if a read takes
	// more than half of Poll, so that an idle relay does not load the database. Default 100 ms.
	Poll time.Duration

	// Batch limits the rows of one read. A read also ends after 8 MiB, so large rows make it
	// smaller, and it may have up to 10,000 rows if reads take longer than 50 ms. Default 1000.
	Batch int

	// Lease is how long a relay stays active without renewing its lease. After a crash of the
	// active relay, another one takes over within Lease. At least 1 s, default 10 s.
	Lease time.Duration

	// OnFailure is called after each failed call of a relay to the database or the bus, and if
	// OnRefused panics. The relay tries again. Calls may be concurrent, and the relay waits for
	// them. By default a warning is logged with slog.Default().
	OnFailure func(Failure)

	// OnRefused is called for each event that was set aside because the bus refused it for good.
	// The relay waits for it. By default an error is logged with slog.Default().
	OnRefused func(Refused)

	// OnActive is called with true when a relay becomes the active one, and with false when it ends
	// or has lost its lease. By default this is logged with slog.Default().
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

// mostBatch is the largest Options.Batch. It limits the length of a statement that deletes rows.
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
// goroutines other than those of its calls of Relay.
type Outbox struct {
	db      *sql.DB
	d       *dialect
	options Options
	tables  tables
	report  reporter
}

// New returns the outbox in db. It makes no call to the database, so the tables may be created
// later. If a field of o is invalid, the error is an *eventbus.FieldError. You close db, once the
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
