package bolt

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// commits counts transactions that were committed.
func commits(t *testing.T, b *Backend) (id int) {
	require.NoError(t, b.store.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	}))
	return id
}

// gather lets calls of b queue behind a call that does nothing. It waits for n calls, when its
// result is called, and then lets them run.
func gather(t *testing.T, b *Backend, wg *sync.WaitGroup) (release func(n int)) {
	b.store.open.Lock()
	length := func() int {
		b.store.commits.mu.Lock()
		defer b.store.commits.mu.Unlock()
		if !b.store.commits.busy {
			return -1
		}
		return len(b.store.commits.queue)
	}
	wg.Go(func() {
		require.NoError(t, b.update(t.Context(), "wait", func(*txn) error { return nil }))
	})
	for length() != 0 {
		runtime.Gosched()
	}
	return func(n int) {
		for length() < n {
			runtime.Gosched()
		}
		b.store.open.Unlock()
	}
}

// Concurrent calls share a transaction, and each gets its own result.
func TestCallsShareATransaction(t *testing.T) {
	b := open(t, newFile(t), Options{})
	_, err := b.Declare(t.Context(), "orders", backend.Declaration{})
	require.NoError(t, err)
	before := commits(t, b)
	var wg sync.WaitGroup
	release := gather(t, b, &wg)
	const n = 32
	positions := make([]string, n)
	for i := range n {
		wg.Go(func() {
			m := &backend.Message{Topic: "orders", ID: fmt.Sprint(i), Once: true}
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
			positions[i] = m.Position
		})
	}
	release(n)
	wg.Wait()
	require.Equal(t, before+1, commits(t, b))
	ms, err := b.Read(t.Context(), "orders", "", 100)
	require.NoError(t, err)
	require.Len(t, ms, n)
	for _, m := range ms {
		var i int
		_, err := fmt.Sscan(m.ID, &i)
		require.NoError(t, err)
		require.Equal(t, m.Position, positions[i])
	}
}

// A call that fails after it has written leaves nothing behind, and the calls beside it succeed.
func TestAFailedCallIsAlone(t *testing.T) {
	b := open(t, newFile(t), Options{})
	boom := errors.New("boom")
	var wg sync.WaitGroup
	release := gather(t, b, &wg)
	errs := make([]error, 9)
	for i := range errs {
		wg.Go(func() {
			errs[i] = b.update(t.Context(), "test", func(tx *txn) error {
				topic, err := tx.makeTopic(fmt.Sprint("topic-", i))
				if err != nil {
					return err
				}
				if err := topic.store(&backend.Message{}, b.options); err != nil {
					return err
				}
				if i%3 == 0 {
					return boom
				}
				return nil
			})
		})
	}
	release(len(errs))
	wg.Wait()
	var want []string
	for i, err := range errs {
		if i%3 == 0 {
			require.ErrorIs(t, err, boom)
			require.ErrorIs(t, err, backend.ErrUnavailable)
		} else {
			require.NoError(t, err)
			want = append(want, fmt.Sprint("topic-", i))
		}
	}
	names, err := b.Topics(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, names)
	for _, name := range names {
		ms, err := b.Read(t.Context(), name, "", 10)
		require.NoError(t, err)
		require.Len(t, ms, 1)
	}
}

// BenchmarkPublishers shows how concurrent publishers share the waits for the disk.
func BenchmarkPublishers(b *testing.B) {
	for _, n := range []int{1, 4, 32, 128} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bus, err := Open(b.Context(), b.TempDir()+"/events.db", Options{})
			require.NoError(b, err)
			defer bus.Close()
			payload := make([]byte, 256)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					for range (b.N + n - 1 - i) / n {
						if err := bus.Publish(b.Context(), []*backend.Message{{Topic: "orders", Payload: payload}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
