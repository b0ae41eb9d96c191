package inmemory

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// Who publishes waits neither for those who read nor for those who acknowledge.
func TestPublishersWaitForNobody(t *testing.T) {
	b := New(Options{})
	defer b.Close()
	publish := func() error { return b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}) }
	require.NoError(t, publish())
	_, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	orders, err := b.directory.acquire("orders") // as Receive, Ack and all others do
	require.NoError(t, err)
	published := make(chan error, 1)
	go func() { published <- publish() }()
	select {
	case err := <-published:
		assert.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
	orders.mu.Unlock()
}

// Whoever goes to sleep while a message is stored wakes up for it.
func TestNoMessageIsSleptThrough(t *testing.T) {
	b := New(Options{})
	defer b.Close()
	const messages = 50_000
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Hour})
	require.NoError(t, err)
	var taken atomic.Int64
	go func() {
		for range messages {
			if _, err := src.Receive(t.Context(), 1); err != nil {
				return
			}
			taken.Add(1)
		}
	}()
	for i := range int64(messages) {
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
		stored := time.Now()
		for taken.Load() <= i { // busy, so that the next is stored just as the receiver goes to sleep
			if runtime.Gosched(); time.Since(stored) > 10*time.Second {
				t.Fatal("a message is stored, and nobody takes it")
			}
		}
		for range i % 1000 {
			taken.Load()
		}
	}
}

// What is published together is read together: while it is being stored, readers
// see nothing of it.
func TestPublishedAtOnce(t *testing.T) {
	b := New(Options{MaxBytes: 10})
	defer b.Close()
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Hour})
	require.NoError(t, err)
	group := src.(*source).group
	refused := 0
	ms := []*backend.Message{{Topic: "orders"}, {Topic: "orders", Payload: make([]byte, 11)}, {Topic: "orders"}}
	b.publish(ms, func(i int, err error) {
		refused++
		assert.Equal(t, 1, i)
		assert.ErrorIs(t, err, backend.ErrTooLarge)
		assert.Zero(t, group.lag(), "the first was stored")
	})
	require.Equal(t, 1, refused)
	ds, err := src.Receive(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, ds, 2)
}

// What groups owe is right, however they come and go beside who publishes.
func TestGroupsComeAndGo(t *testing.T) {
	b := New(Options{})
	defer b.Close()
	config := backend.Config{Topic: "orders", Group: "billing", Start: backend.StartEarliest, Lease: time.Hour}
	attach := func() backend.Source {
		src, err := b.Attach(t.Context(), config)
		require.NoError(t, err)
		return src
	}
	publish := func() { assert.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}})) }
	publish()
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for range 2000 {
			publish()
		}
	})
	for range 200 {
		attach()
		require.NoError(t, b.ResetGroup(t.Context(), "orders", "billing", backend.StartLatest))
		require.NoError(t, b.ResetGroup(t.Context(), "orders", "billing", backend.StartEarliest))
		require.NoError(t, b.DeleteGroup(t.Context(), "orders", "billing"))
	}
	publishing.Wait()
	publish()
	require.Zero(t, b.ledger.unsettled, "there is no group")

	src := attach()
	require.Positive(t, b.ledger.unsettled, "the last is there")
	for b.ledger.unsettled > 0 {
		ds, err := src.Receive(t.Context(), 1000)
		require.NoError(t, err)
		require.NoError(t, src.Ack(t.Context(), backend.Lend(ds)))
	}
	require.Zero(t, src.(*source).group.lag())
	require.Zero(t, b.ledger.messages)
}
