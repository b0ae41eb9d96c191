package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/outbox"
	"github.com/seed41896749/eventbus/outbox/internal/sqltest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asRelay) != "" {
		os.Exit(relayProcess())
	}
	slog.SetLogLoggerLevel(slog.LevelError)
	code := sqltest.Run(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A rig is an outbox in a database of its own, and a bus in memory.
type rig struct {
	*outbox.Outbox
	t   *testing.T
	db  *sqltest.Database
	bus *eventbus.Bus
}

// quick are options with which nothing waits for long.
var quick = outbox.Options{Poll: 5 * time.Millisecond, Lease: time.Second}

func newRig(t *testing.T, db *sqltest.Database, o outbox.Options) *rig {
	if o.Poll == 0 {
		o.Poll = quick.Poll
	}
	if o.Lease == 0 {
		o.Lease = quick.Lease
	}
	if o.OnFailure == nil {
		o.OnFailure = func(outbox.Failure) {}
	}
	ob, err := outbox.New(db.DB, outbox.Dialect(db.Dialect), o)
	require.NoError(t, err)
	migrate(t, db, o.Table)
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Service: "relay", Observer: observer.Observer{Failed: func(observer.Failed) {}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.Background())) }) //nolint:usetesting // its context has ended
	return &rig{ob, t, db, bus}
}

func migrate(t *testing.T, db *sqltest.Database, table string) {
	schema, err := outbox.Schema(outbox.Dialect(db.Dialect), table)
	require.NoError(t, err)
	for range 2 { // IF NOT EXISTS
		for statement := range strings.SplitSeq(schema, ";\n") {
			if strings.TrimSpace(statement) != "" {
				_, err := db.ExecContext(t.Context(), statement)
				require.NoError(t, err, statement)
			}
		}
	}
}

// begin begins a transaction, which is rolled back when the test ends.
func (r *rig) begin() *sql.Tx {
	tx, err := r.db.BeginTx(context.WithoutCancel(r.t.Context()), nil)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// commit publishes events in a transaction of their own.
func (r *rig) commit(topic string, events ...*eventbus.Event) {
	tx := r.begin()
	require.NoError(r.t, r.In(tx).Publish(r.t.Context(), topic, events...))
	require.NoError(r.t, tx.Commit())
}

// relay runs a relay until stop is called, or the test ends.
func (r *rig) relay(to eventbus.Publisher) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Relay(ctx, to) }()
	done := false
	stop = func() {
		if !done {
			done = true
			cancel()
			require.NoError(r.t, <-ended)
		}
	}
	r.t.Cleanup(stop)
	return stop
}

// stored returns the events of a topic of the bus, in order.
func (r *rig) stored(topic string) (events []eventbus.Event) {
	for from := ""; ; {
		ms, err := backend.Read(r.t.Context(), r.bus.Backend(), topic, backend.StartAfter(from), 1000)
		if errors.Is(err, backend.ErrGone) || err == nil && len(ms) == 0 {
			return events
		}
		require.NoError(r.t, err)
		for i := range ms {
			events = append(events, eventbus.EventOf(&ms[i]))
		}
		from = ms[len(ms)-1].Position
	}
}

func (r *rig) ids(topic string) (ids []string) {
	for _, e := range r.stored(topic) {
		ids = append(ids, e.ID)
	}
	return ids
}

// await waits until the topic has the events with these IDs, and no others.
func (r *rig) await(topic string, ids ...string) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) { require.Equal(c, ids, r.ids(topic)) }, 20*time.Second, 5*time.Millisecond)
}

// waiting returns the number of rows that wait.
func (r *rig) waiting() int {
	s, err := r.Stats(r.t.Context())
	require.NoError(r.t, err)
	return s.Waiting
}

// empty waits until no row waits.
func (r *rig) empty() {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.waiting() == 0 }, 30*time.Second, 5*time.Millisecond, "rows still wait")
}

func (r *rig) exec(tx outbox.Execer, query string) {
	r.t.Helper()
	_, err := tx.ExecContext(r.t.Context(), query)
	require.NoError(r.t, err)
}

func event(id, key string) *eventbus.Event {
	return &eventbus.Event{ID: id, Key: key, Payload: []byte("payload of " + id)}
}
