//go:build unix

// Package sqltest starts real database servers for tests: Postgres, MariaDB or MySQL, and a
// SQLite file. The servers of a test process have data of their own, listen on a unix socket
// only, and end with the process. A test gets a new database in them.
package sqltest

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// A Database is an empty database of one test.
type Database struct {
	*sql.DB
	Dialect     string // "postgres", "mysql" or "sqlite"
	Driver, DSN string // for sql.Open, here or in another process
}

// Dialects are the names of the dialects, for [New].
var Dialects = []string{"postgres", "mysql", "sqlite"}

// errMissing is the error of a server whose program is not installed.
var errMissing = errors.New("is not installed; make services installs it")

// Each runs f as a parallel subtest for each dialect, each time with a new database.
func Each(t *testing.T, f func(t *testing.T, db *Database)) {
	t.Parallel()
	for _, dialect := range Dialects {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			f(t, New(t, dialect))
		})
	}
}

var made atomic.Int64

// New returns a new database. If the server is not installed, the test is skipped, or fails
// if EVENTBUS_REQUIRE_BROKERS=1.
func New(t testing.TB, dialect string) *Database {
	t.Helper()
	if dialect == "sqlite" {
		return Open(t, dialect, "sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+
			"?_txlock=immediate&_pragma=busy_timeout(120000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	}
	s, err := shared(dialect)
	switch {
	case errors.Is(err, errMissing) && os.Getenv("EVENTBUS_REQUIRE_BROKERS") != "1":
		t.Skipf("sqltest: %v", err)
	case err != nil:
		t.Fatalf("sqltest: %v", err)
	}
	name := fmt.Sprintf("t%d", made.Add(1))
	if err := s.create(name); err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	return Open(t, dialect, s.driver, s.dsn(name))
}

// Open opens a database that exists. It is closed when the test ends.
func Open(t testing.TB, dialect, driver, dsn string) *Database {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	t.Cleanup(func() { db.Close() })
	return &Database{db, dialect, driver, dsn}
}
