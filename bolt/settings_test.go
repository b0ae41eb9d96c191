package bolt

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// declare declares the topic orders, and expects the settings in force.
func declare(t *testing.T, b *Backend, d backend.Declaration, want backend.TopicSettings) {
	t.Helper()
	got, err := b.Declare(t.Context(), "orders", d)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// attach attaches a member of the topic orders.
func attach(t *testing.T, b *Backend, c backend.Config) *source {
	t.Helper()
	c.Topic = "orders"
	if c.Lease == 0 {
		c.Lease = time.Minute
	}
	s, err := b.Attach(t.Context(), c)
	require.NoError(t, err)
	return s.(*source)
}

// numbered returns n messages of the topic orders with a payload of size bytes.
func numbered(prefix string, n, size int) (ms []*backend.Message) {
	for i := range n {
		ms = append(ms, &backend.Message{Topic: "orders", ID: fmt.Sprint(prefix, i), Payload: make([]byte, size)})
	}
	return ms
}

// settleAll settles the backlog of a member.
func settleAll(t *testing.T, s *source) {
	t.Helper()
	ds, err := s.Receive(t.Context(), 1<<20, 0)
	require.NoError(t, err)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
}

// ids returns the IDs of the messages that the topic orders keeps.
func ids(t *testing.T, b *Backend, from backend.Start) (ids []string) {
	t.Helper()
	ms, err := b.Read(t.Context(), "orders", from, 1<<20)
	require.NoError(t, err)
	for _, m := range ms {
		ids = append(ids, m.ID)
	}
	return ids
}

// maintain maintains a group for as long as there is more to do.
func maintain(t *testing.T, b *Backend, topic, group string) {
	t.Helper()
	for next := time.Duration(0); next < time.Second; {
		var err error
		next, err = b.Maintain(t.Context(), topic, group)
		require.NoError(t, err)
	}
}

// A settled message stays as long as Keep says, even if the process ends in the meantime, and
// not longer than until the next Maintain.
func TestKeepEnds(t *testing.T) {
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		b, err := Open(t.Context(), path, Options{})
		require.NoError(t, err)
		hour := backend.TopicSettings{Keep: time.Hour}
		declare(t, b, backend.Declaration{Settings: hour}, hour)
		s := attach(t, b, backend.Config{Group: "g"})
		want := []string{}
		for i := range 10 {
			require.NoError(t, b.Publish(t.Context(), numbered(fmt.Sprint(i, "-"), 1500, 10)))
			settleAll(t, s)
			want = append(want, fmt.Sprint(i, "-0"))
			time.Sleep(time.Minute)
		}
		first := func() string {
			maintain(t, b, "orders", "g")
			ms, err := b.Read(t.Context(), "orders", "", 1)
			require.NoError(t, err)
			require.Len(t, ms, 1)
			return ms[0].ID
		}
		require.Equal(t, want[0], first())
		require.NoError(t, b.Close())
		b = open(t, path, Options{})
		declare(t, b, backend.Declaration{}, hour)
		time.Sleep(50 * time.Minute)
		require.Equal(t, want[0], first(), "the messages are an hour old, and no older")
		for i := range want[1:] {
			time.Sleep(time.Minute)
			require.Equal(t, want[i+1], first())
		}
		time.Sleep(time.Minute)
		maintain(t, b, "orders", "g")
		require.Empty(t, ids(t, b, ""))
	})
}

// If the clock was set back, messages are stored at the time of the latest message, so the log
// stays sorted by time and Keep removes no message too early.
func TestTheClockIsSetBack(t *testing.T) {
	path := newFile(t)
	hour := backend.TopicSettings{Keep: time.Hour}
	b := open(t, path, Options{})
	declare(t, b, backend.Declaration{Settings: hour}, hour)
	settled := attach(t, b, backend.Config{Group: "g"})
	require.NoError(t, b.Publish(t.Context(), numbered("before-", 2, 0)))
	after := time.Now()
	require.NoError(t, b.Publish(t.Context(), numbered("last-", 1, 0)))
	settleAll(t, settled)
	gone := numbered("gone-", 2, 0)
	require.NoError(t, b.Publish(t.Context(), gone))
	require.NoError(t, b.Remove(t.Context(), "orders", []string{gone[0].Position, gone[1].Position}))
	require.NoError(t, b.Close())
	synctest.Test(t, func(t *testing.T) { // its clock begins in the year 2000
		b := open(t, path, Options{})
		require.NoError(t, b.Publish(t.Context(), numbered("later-", 2, 0)))
		require.Equal(t, []string{"last-0", "later-0", "later-1"}, ids(t, b, backend.StartAt(after)))
		maintain(t, b, "orders", "g")
		require.Len(t, ids(t, b, ""), 5)
	})
}

// MaxBytes counts the messages that the topic had before too, and follows each message that is stored or
// removed. Without MaxBytes no count is stored.
func TestBytesAreCounted(t *testing.T) {
	path := newFile(t)
	b := open(t, path, Options{})
	attach(t, b, backend.Config{Group: "g"})
	old := numbered("old-", 10, 995) // with the ID 1,000 bytes each
	require.NoError(t, b.Publish(t.Context(), old))
	bytes := func(want int64) {
		t.Helper()
		require.NoError(t, b.view(t.Context(), "test", func(tx *txn) error {
			topic, err := tx.topic("orders")
			require.NoError(t, err)
			require.Equal(t, want, topic.settings.bytes)
			return nil
		}))
	}
	limit := backend.TopicSettings{MaxBytes: 10_500}
	declare(t, b, backend.Declaration{Settings: backend.TopicSettings{Keep: time.Hour}}, backend.TopicSettings{Keep: time.Hour})
	bytes(0)
	declare(t, b, backend.Declaration{Settings: limit, Replace: true}, limit)
	bytes(10_000)
	require.ErrorIs(t, b.Publish(t.Context(), numbered("new-", 1, 995)), backend.ErrFull)
	require.NoError(t, b.Publish(t.Context(), numbered("new-", 1, 95)))
	bytes(10_100)
	require.ErrorIs(t, b.Publish(t.Context(), numbered("huge-", 1, 11_000)), backend.ErrTooLarge)
	require.NoError(t, b.Remove(t.Context(), "orders", []string{old[3].Position, old[3].Position}))
	bytes(9_100)
	require.NoError(t, b.Close())
	b = open(t, path, Options{})
	bytes(9_100)
	settleAll(t, attach(t, b, backend.Config{Group: "g"}))
	require.NoError(t, b.Publish(t.Context(), numbered("new-", 1, 2995)), "it makes room for 3,000 bytes")
	require.Equal(t, []string{"old-2", "old-4", "old-5", "old-6", "old-7", "old-8", "old-9", "new-0", "new-0"}, ids(t, b, ""))
	bytes(10_100)
	maintain(t, b, "orders", "g")
	bytes(3_000)
	declare(t, b, backend.Declaration{Replace: true}, backend.TopicSettings{})
	bytes(0)
	declare(t, b, backend.Declaration{Settings: limit}, limit)
	bytes(3_000)
}

// A topic that is full of settled messages by Options.MaxMessages makes room too. The bound of the topic and
// the bound of the backend both hold.
func TestSettledMessagesMakeRoom(t *testing.T) {
	b := open(t, newFile(t), Options{MaxMessages: 4})
	keep := backend.TopicSettings{Keep: time.Hour, MaxMessages: 1000}
	declare(t, b, backend.Declaration{Settings: keep}, keep)
	require.NoError(t, b.Publish(t.Context(), numbered("a-", 4, 0)))
	require.ErrorIs(t, b.Publish(t.Context(), numbered("b-", 1, 0)), backend.ErrFull, "without groups no message is settled")
	s := attach(t, b, backend.Config{Group: "g"})
	ds, err := s.Receive(t.Context(), 2, 0)
	require.NoError(t, err)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	err = b.Publish(t.Context(), numbered("b-", 3, 0))
	require.NoError(t, backend.ErrorAt(err, 1))
	require.ErrorIs(t, backend.ErrorAt(err, 2), backend.ErrFull)
	require.Equal(t, []string{"a-2", "a-3", "b-0", "b-1"}, ids(t, b, ""))
}

// One Publish call removes a bounded number of messages. The next call continues, although the
// first has stored nothing.
func TestRoomIsMadeStepByStep(t *testing.T) {
	const extra = 1000
	b := open(t, newFile(t), Options{})
	b.store.db.NoSync = true
	require.NoError(t, b.Publish(t.Context(), numbered("", maxEvicted+extra, 0)))
	s := attach(t, b, backend.Config{Group: "g"})
	settleAll(t, s)
	one := backend.TopicSettings{MaxMessages: 1}
	declare(t, b, backend.Declaration{Settings: one}, one)
	require.ErrorIs(t, b.Publish(t.Context(), numbered("new-", 1, 0)), backend.ErrFull)
	require.Len(t, ids(t, b, ""), extra)
	require.NoError(t, b.Publish(t.Context(), numbered("new-", 1, 0)))
	require.Equal(t, []string{"new-0"}, ids(t, b, ""))
}

// Read after a position that the topic has not reached returns no message, but no group begins there.
func TestReadBeyondTheEnd(t *testing.T) {
	b := open(t, newFile(t), Options{})
	require.NoError(t, b.Publish(t.Context(), numbered("", 2, 0)))
	require.Empty(t, ids(t, b, backend.StartAfter(position(3))))
	_, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Minute, Start: backend.StartAfter(position(3))})
	require.ErrorIs(t, err, backend.ErrRefused)
}

// A time is found in a log with gaps, of any size.
func TestEachTimeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for size := range 20 {
			b := open(t, newFile(t), Options{})
			_, err := b.Declare(t.Context(), "orders", backend.Declaration{})
			require.NoError(t, err)
			type stored struct {
				id string
				at time.Time
			}
			var all []stored
			var removed []string
			for i := range size * 3 {
				m := numbered(fmt.Sprint(i, "-"), 1, 0)
				require.NoError(t, b.Publish(t.Context(), m))
				if (i*7+size)%5 < 2 {
					removed = append(removed, m[0].Position)
				} else {
					all = append(all, stored{m[0].ID, time.Now()})
				}
				if i%3 > 0 { // some messages are of the same time
					time.Sleep(time.Second)
				}
			}
			require.NoError(t, b.Remove(t.Context(), "orders", removed))
			for at := time.Now().Add(-time.Minute - time.Second/2); at.Before(time.Now().Add(time.Second)); at = at.Add(time.Second / 2) {
				var want []string
				for _, m := range all {
					if !m.at.Before(at) {
						want = append(want, m.id)
					}
				}
				require.Equal(t, want, ids(t, b, backend.StartAt(at)), "size %d", size)
			}
			require.Len(t, ids(t, b, backend.StartAt(time.Time{})), len(all))
			s := attach(t, b, backend.Config{Group: "g", Start: backend.StartAt(time.Now().Add(-time.Second))})
			if len(all) > 0 && all[len(all)-1].at.Equal(time.Now().Add(-time.Second)) {
				ds, err := s.Receive(t.Context(), 1, 0)
				require.NoError(t, err)
				require.NoError(t, ds[0].Err, "a group begins with a message that is there")
			}
		}
	})
}
