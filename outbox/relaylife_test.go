package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/outbox"
	"github.com/seed41896749/eventbus/outbox/internal/sqltest"
)

// Without callbacks the relay logs.
func TestRelayEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, sqltest.New(t, "sqlite"), outbox.Options{})
	require.ErrorContains(t, r.Relay(t.Context(), nil), "to is nil")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, r.Relay(ended, r.bus))
	r.commit("orders", event("1", "k"))
	require.NoError(t, r.bus.Shutdown(t.Context()))
	require.ErrorIs(t, r.Relay(t.Context(), r.bus), eventbus.ErrClosed)
	require.Equal(t, 1, r.waiting())
	s, err := r.Stats(t.Context())
	require.NoError(t, err)
	require.Empty(t, s.Relay, "the lease is given back")
}

// One relay is active, the other stands by. It takes over at once when the first one ends in
// good order.
func TestStandby(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		var active atomic.Int64
		r := newRig(t, db, outbox.Options{Lease: 3 * time.Second, OnActive: func(is bool) {
			if is {
				active.Add(1)
			} else {
				active.Add(-1)
			}
		}})
		var first, second atomic.Int64
		count := func(n *atomic.Int64) eventbus.Publisher {
			return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
				n.Add(int64(len(events)))
				return r.bus.Publish(ctx, topic, events...)
			})
		}
		stop := r.relay(count(&first))
		require.Eventually(t, func() bool { return active.Load() == 1 }, 5*time.Second, time.Millisecond)
		r.relay(count(&second))
		for deadline := time.Now().Add(4 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) { // longer than a lease
			r.commit("orders", event("", "k"))
			require.EqualValues(t, 1, active.Load())
		}
		r.empty()
		require.Positive(t, first.Load())
		require.Zero(t, second.Load())
		s, err := r.Stats(t.Context())
		require.NoError(t, err)
		require.Contains(t, s.Relay, "/")
		stop()
		r.commit("orders", event("", "k"))
		r.empty()
		require.EqualValues(t, 1, second.Load())
	})
}

// A clock of the database that was set back does not keep the lease for a dead relay.
func TestTheClockIsSetBack(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{})
		r.exec(db, "INSERT INTO eventbus_outbox_relay (id, owner, expires, span) VALUES (1, 'dead', 99999999999999, 1000)")
		r.relay(r.bus)
		r.commit("orders", event("1", "k"))
		r.await("orders", "1")
	})
}

// Relay waits for tables that are created later.
func TestTablesAreCreatedLater(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		var f told
		r := newRig(t, db, outbox.Options{OnFailure: f.add})
		for _, table := range []string{"", "_refused", "_relay", "_inbox"} {
			r.exec(db, "DROP TABLE eventbus_outbox"+table)
		}
		r.relay(r.bus)
		require.Eventually(t, func() bool { return f.has("lease", nil) }, 5*time.Second, time.Millisecond)
		migrate(t, db, "")
		r.commit("orders", event("1", "k"))
		r.await("orders", "1")
	})
}

// The relay continues after a database outage.
func TestTheDatabaseStops(t *testing.T) {
	t.Parallel()
	s := sqltest.Start(t, "postgres")
	var f told
	r := newRig(t, s.New(t), outbox.Options{OnFailure: f.add})
	r.relay(r.bus)
	r.commit("orders", event("1", "k"))
	r.await("orders", "1")
	r.empty()
	r.exec(r.db, "CHECKPOINT") // the server of the tests writes late, and would forget that the row was deleted
	s.Stop()
	require.Eventually(t, func() bool { return f.has("read", nil) || f.has("lease", nil) }, 10*time.Second, time.Millisecond)
	s.Run(t)
	r.db.SetMaxIdleConns(0) // the program's connections are broken
	r.commit("orders", event("2", "k"))
	r.await("orders", "1", "2")
}

// Rows that are published and cannot be deleted are not published again: the relay deletes
// them later.
func TestDeletesFail(t *testing.T) {
	t.Parallel()
	r := newRig(t, sqltest.New(t, "sqlite"), outbox.Options{})
	r.exec(r.db, "CREATE TRIGGER no BEFORE DELETE ON eventbus_outbox BEGIN SELECT RAISE(ABORT, 'not now'); END")
	r.commit("orders", event("1", "k"))
	r.relay(r.bus)
	r.await("orders", "1")
	r.commit("orders", event("2", "k"))
	require.Eventually(t, func() bool { return r.Counts().Failures >= 2 }, 5*time.Second, time.Millisecond)
	r.exec(r.db, "DROP TRIGGER no")
	r.empty()
	r.await("orders", "1", "2")
}
