package bolt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// groupsOf returns the groups of the topic orders.
func groupsOf(t *testing.T, b *Backend) []string {
	t.Helper()
	names, err := b.Groups(t.Context(), "orders")
	require.NoError(t, err)
	return names
}

// A group whose members are not heard of for ten leases is deleted by Maintain of another topic. Each
// sign of a member counts.
func TestEphemeralGroupDies(t *testing.T) {
	const lease = time.Minute
	config := backend.Config{Group: "g", Ephemeral: true, Lease: lease}
	signs := map[string]func(t *testing.T, b *Backend, s *source, ds []backend.Delivery){
		"none":   nil,
		"attach": func(t *testing.T, b *Backend, _ *source, _ []backend.Delivery) { attach(t, b, config) },
		"receive": func(t *testing.T, _ *Backend, s *source, _ []backend.Delivery) {
			_, err := s.Receive(t.Context(), 0, 0)
			require.NoError(t, err)
		},
		"extend": func(t *testing.T, _ *Backend, s *source, ds []backend.Delivery) {
			require.NoError(t, s.Extend(t.Context(), backend.Lend(ds)))
		},
		"maintain": func(t *testing.T, b *Backend, _ *source, _ []backend.Delivery) {
			next, err := b.Maintain(t.Context(), "orders", "g")
			require.NoError(t, err)
			require.LessOrEqual(t, next, 3*lease)
		},
	}
	for name, sign := range signs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, newFile(t), Options{})
				other, err := b.Attach(t.Context(), backend.Config{Topic: "other", Group: "works", Lease: lease})
				require.NoError(t, err)
				defer other.Close()
				s := attach(t, b, config)
				require.NoError(t, b.Publish(t.Context(), numbered("", 3, 0)))
				ds, err := s.Receive(t.Context(), 1, 0)
				require.NoError(t, err)
				time.Sleep(9 * lease)
				if sign != nil {
					sign(t, b, s, ds)
				}
				time.Sleep(2 * lease)
				maintain(t, b, "other", "works")
				if sign != nil {
					require.Equal(t, []string{"g"}, groupsOf(t, b))
					time.Sleep(9 * lease)
					maintain(t, b, "other", "works")
				}
				require.Empty(t, groupsOf(t, b))
				_, err = s.Receive(t.Context(), 1, 0)
				require.ErrorIs(t, err, backend.ErrGone)
				require.ErrorIs(t, s.Ack(t.Context(), backend.Lend(ds)), backend.ErrGone)
				require.Empty(t, b.store.ephemerals)
				again := attach(t, b, config)
				require.NoError(t, s.Close())
				require.Equal(t, []string{"g"}, groupsOf(t, b), "a dead member is none of the new group")
				require.NoError(t, again.Close())
				require.Empty(t, groupsOf(t, b))
			})
		})
	}
}

// A member that waits in Receive lives, without any other call.
func TestWaitingMemberLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, newFile(t), Options{})
		s := attach(t, b, backend.Config{Group: "g", Ephemeral: true, Lease: time.Second})
		attach(t, b, backend.Config{Group: "other"})
		ended := make(chan error)
		go func() {
			_, err := s.Receive(context.WithoutCancel(t.Context()), 1, 0)
			ended <- err
		}()
		time.Sleep(time.Hour)
		maintain(t, b, "orders", "other")
		require.Equal(t, []string{"g", "other"}, groupsOf(t, b))
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-ended, backend.ErrClosed)
		require.Equal(t, []string{"other"}, groupsOf(t, b))
	})
}

// Close of the backend deletes the group, unless a member of another backend is left. A replaced member
// keeps no group.
func TestTheLastMemberCloses(t *testing.T) {
	b := open(t, newFile(t), Options{})
	other := open(t, b.store.path, Options{})
	attach(t, b, backend.Config{Group: "lasts"})
	attach(t, other, backend.Config{Group: "two", Ephemeral: true})
	attach(t, b, backend.Config{Group: "two", Ephemeral: true})
	attach(t, other, backend.Config{Group: "one", Ephemeral: true})
	require.NoError(t, other.Close())
	require.Equal(t, []string{"lasts", "two"}, groupsOf(t, b))

	member := backend.Config{Group: "named", Ephemeral: true, Instance: "shop-0", Incarnation: "1"}
	old := attach(t, b, member)
	member.Incarnation = "2"
	anew := attach(t, b, member)
	_, err := old.Receive(t.Context(), 1, 0)
	require.ErrorIs(t, err, backend.ErrReplaced)
	require.NoError(t, anew.Close())
	require.Equal(t, []string{"lasts", "two"}, groupsOf(t, b))
	require.Zero(t, memberRecords(t, b))
}

// memberRecords returns the number of records of members with an Instance.
func memberRecords(t *testing.T, b *Backend) (n int) {
	require.NoError(t, b.store.db.View(func(tx *bbolt.Tx) error {
		n = tx.Bucket([]byte("topics")).Bucket([]byte("orders")).Bucket([]byte("members")).Stats().KeyN
		return nil
	}))
	return n
}

// The ephemeral groups of a process that has died are gone when another process opens the file. A file
// that is opened again in the same process, as after a fault, keeps its groups.
func TestEphemeralGroupsOfADeadProcess(t *testing.T) {
	path := newFile(t)
	b := open(t, path, Options{})
	attach(t, b, backend.Config{Group: "lasts"})
	s := attach(t, b, backend.Config{Group: "g", Ephemeral: true, Instance: "shop-0", Incarnation: "1"})
	require.NoError(t, b.Publish(t.Context(), numbered("", 3, 0)))
	b.store.restart(t, true)
	ds, err := s.Receive(t.Context(), 3, 0)
	require.NoError(t, err)
	require.Len(t, ds, 3)

	b.store.open.Lock() // the process dies
	clear(b.store.ephemerals)
	b.store.open.Unlock()
	b.store.restart(t, true)
	require.Equal(t, []string{"lasts"}, groupsOf(t, b))
	require.Zero(t, memberRecords(t, b))
}

// A member that could not attach keeps no group, even if the file has the group.
func TestAFailedAttachLeavesNoGroup(t *testing.T) {
	b := open(t, newFile(t), Options{})
	attach(t, b, backend.Config{Group: "lasts"})
	boom := errors.New("boom")
	late := &source{backend: b, config: backend.Config{Topic: "orders", Group: "g", Ephemeral: true, Lease: time.Minute}}
	require.NoError(t, b.update(t.Context(), "test", func(tx *txn) error {
		topic, err := tx.topic("orders")
		require.NoError(t, err)
		require.NoError(t, topic.makeGroup("g", tx.unique(), groupAttributes{ephemeral: true}, ""))
		g, err := topic.group("g")
		require.NoError(t, err)
		late.group, late.member = g.identity, tx.unique()
		g.join(late)
		return nil
	}))
	b.store.removeMember(late) // as Attach does after a commit with an unknown outcome
	require.ErrorIs(t, b.update(t.Context(), "test", func(tx *txn) error {
		topic, err := tx.topic("orders")
		require.NoError(t, err)
		require.NoError(t, topic.makeGroup("never", tx.unique(), groupAttributes{ephemeral: true}, ""))
		b.store.joinEphemeral(&source{group: 1 << 40, config: late.config})
		b.store.removeMember(&source{group: 1 << 40})
		return boom
	}), boom)
	maintain(t, b, "orders", "lasts")
	require.Equal(t, []string{"lasts"}, groupsOf(t, b))
}
