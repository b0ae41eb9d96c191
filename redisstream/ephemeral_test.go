package redisstream_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

const (
	index   = "bus:ephemeral"
	passing = "passing" // an ephemeral group
)

// brief returns the config of a member of an ephemeral group, of which ten leases are soon over.
func brief() backend.Config {
	return backend.Config{Topic: topic, Group: passing, Lease: 50 * time.Millisecond, Ephemeral: true}
}

// remains returns the names of all keys that are of the group, or the index.
func remains(t testing.TB, client *redis.Client) []string {
	return slices.DeleteFunc(client.Keys(t.Context(), "*").Val(), func(key string) bool {
		return key != index && !strings.Contains(key, passing)
	})
}

// due makes the members of ephemeral groups due for a look.
func due(t testing.TB, client *redis.Client) {
	for _, place := range client.ZRange(t.Context(), index, 0, -1).Val() {
		require.NoError(t, client.ZAdd(t.Context(), index, redis.Z{Member: place}).Err())
	}
}

// exists reports whether the ephemeral group exists.
func exists(t testing.TB, b *redisstream.Backend) bool {
	groups, err := b.Groups(t.Context(), topic)
	require.NoError(t, err)
	return slices.Contains(groups, passing)
}

// others is the Maintain of another process, for a group of another topic.
func others(t testing.TB, client *redis.Client) {
	t.Helper()
	b := open(t, client, redisstream.Options{})
	s := attach(t, b, backend.Config{Topic: "elsewhere", Group: workers, Lease: lease})
	_, err := b.Maintain(t.Context(), "elsewhere", workers)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// Of an ephemeral group nothing is left, whatever it had: held and delayed messages, members
// that closed while they held messages, replaced members, marks of instances, turns.
func TestEphemeralGroupLeavesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	publish(t, b, batch("a", 20))
	c := brief()
	c.Lease = time.Minute
	holds, last := attach(t, b, c), attach(t, b, c)
	receive(t, holds, 5)
	c.Instance, c.Incarnation = "shop-0", "first"
	replaced := attach(t, b, c)
	receive(t, replaced, 5)
	c.Incarnation = "second"
	second := attach(t, b, c)
	require.NoError(t, second.Delay(t.Context(), []backend.Delayed{{Delivery: receive(t, second, 1)[0], For: time.Hour}}))
	next, err := b.Maintain(t.Context(), topic, passing)
	require.NoError(t, err)
	require.LessOrEqual(t, next, 5*time.Second)
	require.NoError(t, holds.Close())
	require.NoError(t, second.Close())
	require.True(t, exists(t, b))
	require.NotEmpty(t, remains(t, client))
	require.NoError(t, last.Close())
	require.Equal(t, []string{index}, remains(t, client), "of the replaced member, which has not closed")
	pause(600 * time.Millisecond) // until it runs its script again
	_, err = replaced.Receive(t.Context(), 1, 0)
	require.ErrorIs(t, err, backend.ErrGone)
	require.NoError(t, replaced.Close())
	require.Empty(t, remains(t, client))
	require.False(t, exists(t, b))
}

// Close of a Backend closes its members, which deletes their groups.
func TestClosedBackendLeavesNoEphemeralGroup(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	attach(t, b, brief())
	attach(t, b, brief())
	require.NoError(t, b.Close())
	require.Empty(t, remains(t, client))
}

// The members of a process that has died count as heard of for ten leases. Then Maintain of
// another process, for another topic, deletes their group. A group stays if one of its
// members is heard of, only by its reads too.
func TestDeadMembersAreFound(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	b := open(t, client, redisstream.Options{})
	publish(t, b, batch("a", 3))
	attach(t, b, brief())
	reads := attach(t, b, brief())
	receive(t, reads, 1)
	due(t, client)
	others(t, client)
	require.True(t, exists(t, b), "they have just attached")

	pause(600 * time.Millisecond)
	nothingNew(t, reads)
	due(t, client)
	others(t, client)
	require.True(t, exists(t, b), "one of them reads")
	require.Len(t, client.ZRange(t.Context(), index, 0, -1).Val(), 1, "the other one is dead")

	pause(600 * time.Millisecond)
	due(t, client)
	others(t, client)
	require.False(t, exists(t, b))
	require.Empty(t, remains(t, client))
	_, err := reads.Receive(t.Context(), 1, 0)
	require.ErrorIs(t, err, backend.ErrGone)
}

// nothingNew receives once, whatever comes.
func nothingNew(t testing.TB, s backend.Source) {
	_, err := s.Receive(within(t, 100*time.Millisecond), 1, 0)
	if err != nil {
		require.ErrorIs(t, err, within(t, 0).Err())
	}
}

// If the index is lost, Maintain of a living member rebuilds it. If a member is missing in its
// group, Maintain adds it again, but not to a group that was deleted or is lasting.
func TestIndexOfMembersHeals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	b := open(t, client, redisstream.Options{})
	first, second := attach(t, b, brief()), attach(t, b, brief())
	members := stream + ":delayed:" + passing + ":members"
	require.NoError(t, client.Del(t.Context(), index).Err())
	require.NoError(t, client.ZPopMin(t.Context(), members).Err())
	maintain := func() time.Duration {
		next, err := b.Maintain(t.Context(), topic, passing)
		require.NoError(t, err)
		return next
	}
	require.Equal(t, 150*time.Millisecond, maintain(), "three leases")
	require.Equal(t, int64(2), client.ZCard(t.Context(), index).Val())
	require.Equal(t, int64(2), client.ZCard(t.Context(), members).Val())

	require.NoError(t, b.DeleteGroup(t.Context(), topic, passing))
	lasting := brief()
	lasting.Ephemeral = false
	lasts := attach(t, b, lasting)
	maintain()
	require.Zero(t, client.Exists(t.Context(), members).Val(), "the group is lasting now")
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	require.NoError(t, lasts.Close())
	require.True(t, exists(t, b))
	require.Zero(t, client.Exists(t.Context(), index).Val())
}

// A lost stream takes its groups along. They may be created again as either kind.
func TestEphemeralGroupOfLostStream(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	b := open(t, client, redisstream.Options{})
	attach(t, b, brief())
	require.NoError(t, client.Del(t.Context(), stream).Err())
	lasting := brief()
	lasting.Ephemeral = false
	attach(t, b, lasting)
	require.NoError(t, client.Del(t.Context(), stream).Err())
	attach(t, b, brief())
	require.NoError(t, client.Del(t.Context(), stream).Err())
	pause(600 * time.Millisecond)
	due(t, client)
	others(t, client)
	require.Empty(t, remains(t, client))
}

// An ephemeral group makes a stream young only if it is the first group, because it could come
// and go every minute.
func TestEphemeralGroupsKeepNoStreamYoung(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	b := open(t, client, redisstream.Options{})
	young := func() int64 { return client.Exists(t.Context(), stream+":young").Val() }
	first := attach(t, b, brief())
	require.Equal(t, int64(1), young())
	attach(t, b, config())
	require.NoError(t, first.Close())
	require.NoError(t, client.Del(t.Context(), stream+":young").Err())
	attach(t, b, brief())
	require.Zero(t, young())
}
