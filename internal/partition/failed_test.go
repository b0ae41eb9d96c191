package partition

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// Each owner of a partition knows the keys that the owners before it have stored and not released.
func TestFailedKeys(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	const n = 4
	read := func(group string, partition int) *FailedKeys {
		k, err := ReadFailed(t.Context(), b, "orders", group, partition, n)
		require.NoError(t, err)
		return k
	}
	fail := func(k *FailedKeys, key string) {
		m, full := k.Message(key)
		require.False(t, full)
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		k.Stored(key, true)
	}
	release := func(k *FailedKeys, key string) {
		remove := k.Release(key)
		require.NotNil(t, remove)
		require.NoError(t, remove(t.Context()))
		require.NoError(t, remove(t.Context()), "it may be repeated")
	}
	var keys, elsewhere []string // of partition 3, and of another one
	for i := 0; len(keys) < 3 || len(elsewhere) < 1; i++ {
		if key := fmt.Sprintf("Zürich \u2028\" %d", i); Of(key, n) == 3 {
			keys = append(keys, key)
		} else {
			elsewhere = append(elsewhere, key)
		}
	}
	slices.Sort(keys)
	first := read("g", 3)
	require.Empty(t, first.Keys())
	for _, key := range keys {
		fail(first, key)
		m, full := first.Message(key)
		require.Nil(t, m, "a key has one message")
		require.False(t, full)
	}
	fail(read("other", 3), keys[0])
	fail(read("g", Of(elsewhere[0], n)), elsewhere[0])
	twice := &FailedKeys{topic: first.topic, group: "g", keys: map[string]bool{}} // a call without an answer
	m, _ := twice.Message(keys[0])
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))

	next := read("g", 3)
	require.Equal(t, keys, next.Keys())
	release(next, keys[0])
	require.Nil(t, next.Release("never failed"))
	require.Equal(t, keys[1:], next.Keys())
	require.Equal(t, keys[1:], read("g", 3).Keys())
	require.Equal(t, keys[:1], read("other", 3).Keys())
	require.Equal(t, elsewhere[:1], read("g", Of(elsewhere[0], n)).Keys())
	fail(next, keys[0])
	require.Contains(t, read("g", 3).Keys(), keys[0])
	remove := next.Release(keys[0])
	fail(next, keys[0]) // while the first message is being removed
	require.NoError(t, remove(t.Context()))
	require.Contains(t, read("g", 3).Keys(), keys[0])

	all, err := ReadFailed(t.Context(), b, "orders", "g", 0, 1)
	require.NoError(t, err)
	require.Len(t, all.Keys(), len(keys)+1, "a key finds its owner after a change of the number")
}

// A key whose message may not be stored gets another one.
func TestFailedKeyIsStoredAgain(t *testing.T) {
	k, err := ReadFailed(t.Context(), inmemory.New(inmemory.Options{}), "orders", "g", 0, 1)
	require.NoError(t, err)
	one, _ := k.Message("a")
	k.Stored("a", false)
	two, _ := k.Message("a")
	require.NotNil(t, two)
	require.NotEqual(t, one.ID, two.ID)
}

func TestFailedKeysAreBounded(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	k, err := ReadFailed(t.Context(), b, "orders", "g", 0, 1)
	require.NoError(t, err)
	for i := range MostFailed {
		m, full := k.Message(fmt.Sprint(i))
		require.False(t, full)
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		k.Stored(fmt.Sprint(i), true)
	}
	m, full := k.Message("one more")
	require.True(t, full)
	require.Nil(t, m)
	m, full = k.Message("7")
	require.False(t, full)
	require.Nil(t, m)
	require.NotNil(t, k.Release("7"))
	m, full = k.Message("one more")
	require.False(t, full)
	require.NotNil(t, m)
}

// A topic that cannot be read fails the new owner, because it would run events of failed keys.
func TestFailedKeysThatCannotBeRead(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	require.NoError(t, b.Close())
	_, err := ReadFailed(t.Context(), b, "orders", "g", 0, 1)
	require.Error(t, err)
	require.False(t, errors.Is(err, backend.ErrGone))
}
