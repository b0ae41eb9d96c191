package inmemory_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// A member that begins to wait while a message is stored wakes up for it.
func TestNoMessageIsSleptThrough(t *testing.T) {
	const messages = 50_000
	b := open(t, inmemory.Options{})
	src := attach(t, b, "billing")
	var taken atomic.Int64
	go func() {
		for range messages {
			ds, err := src.Receive(t.Context(), 1, 0)
			if err != nil || src.Ack(t.Context(), backend.Lend(ds)) != nil {
				return
			}
			taken.Add(1)
		}
	}()
	for i := range int64(messages) {
		publish(t, b, "1")
		stored := time.Now()
		for taken.Load() <= i { // spins, so that the next message is stored just as the receiver begins to wait
			if runtime.Gosched(); time.Since(stored) > 10*time.Second {
				t.Fatal("a message is stored, and nobody takes it")
			}
		}
		for range i % 1000 {
			taken.Load()
		}
	}
}

// Messages published together become visible together.
func TestPublishedAtOnce(t *testing.T) {
	const batch, batches = 100, 500
	b := open(t, inmemory.Options{})
	attach(t, b, "billing")
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for range batches {
			publish(t, b, make([]string, batch)...)
		}
	})
	for seen := int64(0); seen < batch*batches; {
		s, err := b.Stats(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Zero(t, s.Lag%batch, "a part of a batch is seen")
		seen = s.Lag
	}
	publishing.Wait()
}

// The count of unsettled messages stays right while groups come and go during publishing.
func TestGroupsComeAndGo(t *testing.T) {
	b := open(t, inmemory.Options{MaxMessages: 3000})
	publish(t, b, "1")
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for range 2000 {
			assert.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
		}
	})
	for range 200 {
		attach(t, b, "billing")
		require.NoError(t, b.ResetGroup(t.Context(), "orders", "billing", backend.StartLatest))
		require.NoError(t, b.ResetGroup(t.Context(), "orders", "billing", backend.StartEarliest))
		require.NoError(t, b.DeleteGroup(t.Context(), "orders", "billing"))
	}
	publishing.Wait()
	require.NoError(t, b.WaitSettled(t.Context()), "there is no group")
	publish(t, b, "last")
	src := attach(t, b, "billing")
	for last := false; !last; {
		ds := receive(t, src, 1000)
		last = ds[len(ds)-1].ID == "last"
		require.NoError(t, src.Ack(t.Context(), backend.Lend(ds)))
	}
	require.NoError(t, b.WaitSettled(t.Context()))
	for range 3000 {
		publish(t, b, "again") // there is room for all
	}
}

// After the backend's Close a member returns ErrClosed, even if its topic or its group was
// deleted before.
func TestClosedAfterDeletion(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"topic", "group"} {
		b := inmemory.New(inmemory.Options{})
		s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: "g", Lease: time.Second})
		require.NoError(t, err)
		if topic == "topic" {
			require.NoError(t, b.DeleteTopic(t.Context(), topic))
		} else {
			require.NoError(t, b.DeleteGroup(t.Context(), topic, "g"))
		}
		_, err = s.Receive(t.Context(), 1, 0)
		require.ErrorIs(t, err, backend.ErrGone)
		require.NoError(t, b.Close())
		_, err = s.Receive(t.Context(), 1, 0)
		require.ErrorIs(t, err, backend.ErrClosed)
		require.ErrorIs(t, s.Ack(t.Context(), nil), backend.ErrClosed)
	}
}

// A topic takes messages up to the last byte of its limit, and no byte more.
func TestATopicIsFilledToItsLastByte(t *testing.T) {
	t.Parallel()
	m := func() *backend.Message { return &backend.Message{Topic: "orders", Payload: make([]byte, 100)} }
	for _, spare := range []int64{0, -1} {
		b := inmemory.New(inmemory.Options{})
		_, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Second})
		require.NoError(t, err)
		_, err = b.Declare(t.Context(), "orders", backend.Declaration{Settings: backend.TopicSettings{MaxBytes: 2*int64(m().Size()) + spare}})
		require.NoError(t, err)
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m()}))
		err = b.Publish(t.Context(), []*backend.Message{m()})
		if spare == 0 {
			require.NoError(t, err)
			err = b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "one more"}})
		}
		require.ErrorIs(t, err, backend.ErrFull)
		require.NoError(t, b.Close())
	}
}

// A topic that is created again doesn't reuse the positions of its messages before, even if a shorter
// topic was deleted in the meantime: a program may still hold such a position.
func TestPositionsOfADeletedTopicAreNotReused(t *testing.T) {
	t.Parallel()
	b := inmemory.New(inmemory.Options{})
	var last string
	for range 10 {
		m := &backend.Message{Topic: "long"}
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		last = m.Position
	}
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "short"}}))
	require.NoError(t, b.DeleteTopic(t.Context(), "long"))
	require.NoError(t, b.DeleteTopic(t.Context(), "short"))
	m := &backend.Message{Topic: "long"}
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
	require.Greater(t, m.Position, last)
}
