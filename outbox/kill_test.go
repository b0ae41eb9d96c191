//go:build unix

package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/outbox/internal/sqltest"
	"github.com/seed41896749/eventbus/redisstream"
)

const (
	killWriters = 12
	killKeys    = 500
	kills       = 5
	killLease   = time.Second
)

// An account holds the events of a run of TestKill: the committed ones, by ID, and for each key
// the number of its last committed event.
type account struct {
	topic string

	mu         sync.Mutex
	committed  map[string]bool
	last       map[string]int
	rolledBack int

	begun, ended atomic.Int64 // transactions
}

// TestKill is the exact account. Overlapping transactions publish events with the counters of
// their keys, and a tenth is rolled back. Meanwhile the active relay process is killed five
// times, and frozen once until another one has taken over. In the end the broker has each
// committed event, no other one, and the first occurrences of each key in the order of
// commits. EVENTBUS_OUTBOX_KILL sets the number of transactions.
func TestKill(t *testing.T) {
	transactions := 1000
	if text := os.Getenv("EVENTBUS_OUTBOX_KILL"); text != "" {
		var err error
		transactions, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	t.Parallel()
	server := redistest.Start(t)
	for _, dialect := range sqltest.Dialects {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			r := newShop(t, sqltest.New(t, dialect))
			r.exec(r.db, "CREATE TABLE counters (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
			for key := range killKeys {
				r.exec(r.db, fmt.Sprintf("INSERT INTO counters (id, n) VALUES (%d, 0)", key))
			}
			p := newProcesses(t, r, server.URL(), killLease)
			a := &account{topic: "kill-" + dialect, committed: map[string]bool{}, last: map[string]int{}}
			began := time.Now()
			var writing sync.WaitGroup
			for range killWriters {
				writing.Go(func() {
					for a.begun.Add(1) <= int64(transactions) {
						a.write(r)
					}
				})
			}
			var worst time.Duration
			for i := range kills + 1 {
				// The last ones happen while the backlog is published.
				require.Eventually(t, func() bool { return t.Failed() || a.ended.Load() >= int64(transactions*(i+1)/(kills+1)) }, 10*time.Minute, time.Millisecond)
				if t.Failed() {
					writing.Wait()
					return
				}
				if i == kills/2 {
					p.freeze()
				} else {
					worst = max(worst, p.kill())
				}
			}
			writing.Wait()
			require.Eventually(t, func() bool { return r.waiting() == 0 }, 2*time.Minute, 10*time.Millisecond, "rows still wait")
			took := time.Since(began)
			total, doubles := a.check(t, server.URL())
			t.Logf("%s: %d transactions, %d rolled back; %d events in %v, %.0f a second; killed %d times, frozen once, longest takeover %v; doubles %d",
				dialect, transactions, a.rolledBack, total, took.Round(time.Millisecond), float64(total)/took.Seconds(), kills, worst.Round(time.Millisecond), doubles)
		})
	}
}

// write makes one transaction of one to three events of different keys.
func (a *account) write(r *rig) {
	defer a.ended.Add(1) // even if it fails, and the test with it
	ctx := r.t.Context()
	tx, err := r.db.BeginTx(ctx, nil)
	require.NoError(r.t, err)
	defer tx.Rollback()
	n := 1 + rand.IntN(3)
	first := rand.IntN(killKeys - n)
	counters, ids := map[string]int{}, []string{}
	for key := first; key < first+n; key++ { // in the order of keys, so that no two transactions wait for each other
		r.exec(tx, fmt.Sprintf("UPDATE counters SET n = n + 1 WHERE id = %d", key))
		var n int
		require.NoError(r.t, tx.QueryRowContext(ctx, fmt.Sprintf("SELECT n FROM counters WHERE id = %d", key)).Scan(&n))
		e := &eventbus.Event{ID: fmt.Sprint(rand.Uint64()), Key: strconv.Itoa(key), Payload: []byte(strconv.Itoa(n))}
		require.NoError(r.t, r.In(tx).Publish(ctx, a.topic, e))
		counters[e.Key] = n
		ids = append(ids, e.ID)
	}
	commits := rand.IntN(10) > 0
	if commits {
		require.NoError(r.t, tx.Commit())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !commits {
		a.rolledBack++
		return
	}
	for _, id := range ids {
		a.committed[id] = true
	}
	for key, n := range counters {
		a.last[key] = max(a.last[key], n)
	}
}

// check compares the topic of the broker with the account. It returns the number of events,
// and of further copies of them.
func (a *account) check(t *testing.T, url string) (total, doubles int) {
	bus, err := eventbus.Open(t.Context(), url, eventbus.Options{}, redisstream.Driver{})
	require.NoError(t, err)
	defer bus.Shutdown(context.WithoutCancel(t.Context()))
	seen, last := map[string]bool{}, map[string]int{}
	for from := ""; ; {
		ms, err := backend.Read(t.Context(), bus.Backend(), a.topic, backend.StartAfter(from), 1000)
		require.NoError(t, err)
		if len(ms) == 0 {
			break
		}
		for i := range ms {
			e := eventbus.EventOf(&ms[i])
			require.True(t, a.committed[e.ID], "event %s was never committed", e.ID)
			if seen[e.ID] {
				doubles++
				continue
			}
			id := strings.Clone(e.ID)
			seen[id] = true
			n, err := strconv.Atoi(string(e.Payload))
			require.NoError(t, err)
			require.Equal(t, last[e.Key]+1, n, "key %s is out of order", e.Key)
			last[strings.Clone(e.Key)] = n
		}
		from = ms[len(ms)-1].Position
	}
	require.Len(t, seen, len(a.committed), "committed events are missing")
	require.Equal(t, a.last, last)
	return len(seen), doubles
}
