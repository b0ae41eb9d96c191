package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus"
)

// A Dialect names the SQL dialect of a database.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres" // PostgreSQL 13 or later
	MySQL    Dialect = "mysql"    // MySQL 8.0.4 or MariaDB 10.6, or later, with InnoDB
	SQLite   Dialect = "sqlite"   // SQLite 3.35 or later
)

// A dialect holds the differences between databases.
type dialect struct {
	name   Dialect
	now    string // the database's clock, in milliseconds since 1970
	quote  string // quotes a name
	ignore string // begins an INSERT that skips rows whose key exists
	skip   string // ends such a statement
	lock   string // ends a SELECT that locks its rows

	// The isolation of transactions. With READ COMMITTED, InnoDB locks no gaps and Postgres tracks
	// no reads. nil is the database's default.
	read, write *sql.TxOptions
}

var dialects = map[Dialect]*dialect{
	Postgres: {
		name: Postgres, quote: `"`, ignore: "INSERT INTO", skip: " ON CONFLICT DO NOTHING", lock: " FOR UPDATE",
		now:   "(extract(epoch from clock_timestamp()) * 1000)::bigint",
		read:  &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true},
		write: &sql.TxOptions{Isolation: sql.LevelReadCommitted},
	},
	MySQL: {
		name: MySQL, quote: "`", ignore: "INSERT IGNORE INTO", lock: " FOR UPDATE",
		now:   "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000",
		read:  &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true},
		write: &sql.TxOptions{Isolation: sql.LevelReadCommitted},
	},
	SQLite: { // one transaction writes at a time
		name: SQLite, quote: `"`, ignore: "INSERT INTO", skip: " ON CONFLICT DO NOTHING",
		now: "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
	},
}

func dialectOf(name Dialect) (*dialect, error) {
	if d := dialects[name]; d != nil {
		return d, nil
	}
	return nil, &eventbus.FieldError{Field: "dialect", Reason: fmt.Sprintf(
		"is %q, which is none of %s, %s and %s", string(name), Postgres, MySQL, SQLite)}
}

// tables holds the quoted names of the tables.
type tables struct{ waiting, refused, relay, inbox string }

func (d *dialect) tables(name string) tables {
	quoted := func(suffix string) string {
		return d.quote + strings.ReplaceAll(name, ".", d.quote+"."+d.quote) + suffix + d.quote
	}
	return tables{quoted(""), quoted("_refused"), quoted("_relay"), quoted("_inbox")}
}

// A statement is SQL under construction, with its arguments.
type statement struct {
	d    *dialect
	text strings.Builder
	args []any
}

func (d *dialect) statement(text ...string) *statement {
	s := &statement{d: d}
	return s.add(text...)
}

func (s *statement) add(text ...string) *statement {
	for _, t := range text {
		s.text.WriteString(t)
	}
	return s
}

// arg adds a placeholder for v.
func (s *statement) arg(v any) *statement {
	s.args = append(s.args, v)
	if s.d.name == Postgres {
		return s.add("$", strconv.Itoa(len(s.args)))
	}
	return s.add("?")
}

// ids adds the condition that a column has one of ids. The numbers are part of the text, because
// MySQL drivers prepare a statement with arguments for each call. Postgres gets them as one
// argument, because its drivers cache statements by text.
func (s *statement) ids(column string, ids []int64) *statement {
	if s.d.name == Postgres {
		return s.add(column, " = ANY(").arg("{" + join(ids) + "}").add("::text::bigint[])")
	}
	return s.add(column, " IN (", join(ids), ")")
}

func join(ids []int64) string {
	var list []byte
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, id, 10)
	}
	return string(list)
}

// deleteIDs returns the statement that deletes rows by primary key. On MySQL it is a join in a
// forced order: with IN (…) the optimizer may scan the table, and the scan would wait for rows of
// open transactions.
func (d *dialect) deleteIDs(table string, ids []int64) *statement {
	if d.name == MySQL {
		return d.statement("DELETE o FROM JSON_TABLE('[", join(ids), "]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS d",
			" STRAIGHT_JOIN ", table, " AS o FORCE INDEX (PRIMARY) ON o.id = d.id")
	}
	return d.statement("DELETE FROM ", table, " WHERE ").ids("id", ids)
}

// queryer is a *sql.DB or a *sql.Tx.
type queryer interface {
	Execer
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *statement) exec(ctx context.Context, q Execer) (sql.Result, error) {
	return q.ExecContext(ctx, s.text.String(), s.args...)
}

func (s *statement) query(ctx context.Context, q queryer) (*sql.Rows, error) {
	return q.QueryContext(ctx, s.text.String(), s.args...)
}

func (s *statement) row(ctx context.Context, q queryer) *sql.Row {
	return q.QueryRowContext(ctx, s.text.String(), s.args...)
}

// begin calls f in a transaction, and commits it if f returns nil.
func (o *Outbox) begin(ctx context.Context, with *sql.TxOptions, f func(*sql.Tx) error) error {
	tx, err := o.db.BeginTx(ctx, with)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after a Commit; otherwise the error of f is returned
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func itoa(n int) string { return strconv.Itoa(n) }
