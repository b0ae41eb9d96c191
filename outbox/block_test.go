package outbox_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/outbox"
	"github.com/seed41896749/eventbus/outbox/internal/sqltest"
)

// Promise 4: a writer never waits for the relay. Each statement of the writers, which use the
// default isolation of the database, gives up after a moment if it must wait for a lock. The
// deletions of the relay are slow, so that a wait for them would be long.
func TestWritersAreNotBlocked(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{Batch: 50, Poll: time.Millisecond})
		switch db.Dialect {
		case "postgres":
			r.exec(db, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$")
			r.exec(db, "CREATE TRIGGER slow AFTER DELETE ON eventbus_outbox EXECUTE FUNCTION slow()")
		case "mysql":
			r.exec(db, "CREATE TRIGGER slow AFTER DELETE ON eventbus_outbox FOR EACH ROW DO SLEEP(0.005)")
		}
		r.relay(eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
			time.Sleep(10 * time.Millisecond) // rows are in flight for longer
			return r.bus.Publish(ctx, topic, events...)
		}))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 50 {
					tx, err := db.BeginTx(t.Context(), nil)
					require.NoError(t, err)
					switch db.Dialect {
					case "postgres":
						r.exec(tx, "SET LOCAL lock_timeout = '100ms'")
					case "mysql":
						r.exec(tx, "SET SESSION innodb_lock_wait_timeout = 0")
					}
					began := time.Now()
					require.NoError(t, r.In(tx).Publish(t.Context(), "orders", event("", "k"), event("", "")))
					if db.Dialect != "sqlite" { // there a writer waits for other transactions that write
						time.Sleep(time.Millisecond)
						require.NoError(t, r.In(tx).Publish(t.Context(), "orders", event("", "k")))
					}
					require.NoError(t, tx.Commit())
					require.Less(t, time.Since(began), 5*time.Second)
				}
			})
		}
		all.Wait()
		r.empty()
		want := 600
		if db.Dialect == "sqlite" {
			want = 400
		}
		require.Len(t, r.stored("orders"), want)
	})
}

// The relay does not wait for open transactions either, whatever part of the table is theirs:
// it reads and deletes by number.
func TestTheRelayIsNotBlocked(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"postgres", "mysql"} {
		for _, rows := range []int{1, 10, 100, 1000} {
			r := newRig(t, sqltest.New(t, dialect), outbox.Options{})
			events := make([]*eventbus.Event, rows)
			for i := range events {
				events[i] = event("", "k")
			}
			r.commit("orders", events...)
			require.NoError(t, r.In(r.begin()).Publish(t.Context(), "orders", event("open", "k")))
			r.commit("orders", events...)
			stop := r.relay(r.bus)
			require.Eventually(t, func() bool { return r.waiting() == 0 }, 20*time.Second, 5*time.Millisecond, "%s, %d rows", dialect, rows)
			stop()
		}
	}
}
