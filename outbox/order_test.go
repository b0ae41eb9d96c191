package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/outbox"
	"github.com/seed41896749/eventbus/outbox/internal/sqltest"
)

// Promise 2: the order of a key is the order of commits, and not the order of numbers. The
// first transaction inserts first and commits last. The relay runs in between, and must
// neither wait for the open transaction nor lose its event.
func TestALaterNumberCommitsFirst(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"postgres", "mysql"} { // on SQLite one transaction writes at a time
		t.Run(dialect, func(t *testing.T) {
			r := newRig(t, sqltest.New(t, dialect), outbox.Options{})
			r.relay(r.bus)
			slow := r.begin()
			require.NoError(t, r.In(slow).Publish(t.Context(), "orders", event("committed last", "k")))
			r.commit("orders", event("committed first", "k"), event("other", "other"))
			r.await("orders", "committed first", "other")
			r.commit("orders", event("committed second", "k"))
			r.await("orders", "committed first", "other", "committed second")
			require.NoError(t, slow.Commit())
			r.await("orders", "committed first", "other", "committed second", "committed last")
		})
	}
}

// writers runs n goroutines. Each commits transactions until all have made count of them. A
// transaction locks the rows of one to three keys, and publishes an event with the new
// counter of each key, so the counters of committed events are the order of commits, without
// a gap. Some transactions publish another event before they take the locks, whose order is not
// defined. A tenth is rolled back. writers returns the last counter of each key.
func (r *rig) writers(n, count, keys int) map[string]int {
	r.exec(r.db, "CREATE TABLE counters (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
	for key := range keys {
		r.exec(r.db, fmt.Sprintf("INSERT INTO counters (id, n) VALUES (%d, 0)", key))
	}
	last := map[string]int{}
	var mu sync.Mutex
	var begun atomic.Int64
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for begun.Add(1) <= int64(count) {
				for k, n := range r.write(keys) {
					mu.Lock()
					last[k] = max(last[k], n)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return last
}

// write makes one transaction, and returns the counters that it has committed.
func (r *rig) write(keys int) map[string]int {
	ctx := r.t.Context()
	tx, err := r.db.BeginTx(ctx, nil)
	require.NoError(r.t, err)
	defer tx.Rollback()
	topic := func(key int) string { return "orders" + strconv.Itoa(key%3) }
	committed := map[string]int{}
	first := rand.IntN(keys)
	if rand.IntN(4) == 0 {
		require.NoError(r.t, r.In(tx).Publish(ctx, "early", &eventbus.Event{Key: strconv.Itoa(first)}))
	}
	for key := first; key < min(keys, first+1+rand.IntN(3)); key++ { // in the order of keys, so that no two transactions wait for each other
		r.exec(tx, fmt.Sprintf("UPDATE counters SET n = n + 1 WHERE id = %d", key))
		var n int
		require.NoError(r.t, tx.QueryRowContext(ctx, fmt.Sprintf("SELECT n FROM counters WHERE id = %d", key)).Scan(&n))
		k := strconv.Itoa(key)
		require.NoError(r.t, r.In(tx).Publish(ctx, topic(key), &eventbus.Event{Key: k, Payload: []byte(strconv.Itoa(n))}))
		committed[k] = n
		if rand.IntN(8) == 0 {
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		}
	}
	if rand.IntN(10) == 0 {
		return nil
	}
	require.NoError(r.t, tx.Commit())
	return committed
}

// check fails unless the first occurrences of the events of each key count from one to the
// last counter.
func (r *rig) check(last map[string]int) {
	r.t.Helper()
	seen := map[string]int{}
	for i := range 3 {
		for _, e := range r.stored("orders" + strconv.Itoa(i)) {
			n, err := strconv.Atoi(string(e.Payload))
			require.NoError(r.t, err)
			require.LessOrEqual(r.t, n, seen[e.Key]+1, "key %s: event %d is published before event %d", e.Key, n, seen[e.Key]+1)
			seen[e.Key] = max(seen[e.Key], n)
		}
	}
	require.Equal(r.t, last, seen)
}

// Overlapping transactions take locks in every order, while small reads run in between.
func TestOrderIsCommitOrder(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{Batch: 7, Poll: time.Millisecond})
		r.relay(r.bus)
		last := r.writers(10, 400, 20)
		r.empty()
		r.check(last)
	})
}

// The order of first occurrences does not need the lease: it holds even if several relays
// publish at once, as happens when a frozen relay continues.
func TestOrderWithoutALease(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{Batch: 20, Poll: time.Millisecond})
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.RelayWithoutLease(ctx, r.bus) }()
			t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
		}
		last := r.writers(10, 250, 20)
		r.empty()
		r.check(last)
	})
}

// The number of a deleted row is never given to another one, so a relay that was frozen does
// not delete a row that it has not published.
func TestNumbersAreNotUsedAgain(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{})
		last := 0
		for range 3 {
			stop := r.relay(r.bus)
			r.commit("orders", event("", "k"))
			r.empty()
			stop()
			r.commit("orders", event("", "k"))
			var number int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT MAX(id) FROM eventbus_outbox").Scan(&number))
			require.Greater(t, number, last)
			last = number
			r.exec(db, "DELETE FROM eventbus_outbox")
		}
	})
}
