package partition

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// Each owner of a partition knows the keys that the owners before it have stored and not released.
func TestFailedKeys(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	read := func(group string, partition int) *FailedKeys {
		k, err := ReadFailed(t.Context(), b, "orders", group, partition)
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
	first := read("g", 3)
	require.Empty(t, first.Keys())
	for _, key := range []string{"a", "Zürich", "", "\u2028\""} {
		fail(first, key)
		m, full := first.Message(key)
		require.Nil(t, m, "a key has one message")
		require.False(t, full)
	}
	fail(read("other", 3), "of another group")
	fail(read("g", 4), "of another partition")
	// an owner whose call had an unknown outcome stores a key twice
	twice := read("g", 3)
	m, _ := (&FailedKeys{topic: first.topic, group: "g", partition: 3, keys: map[string]bool{}}).Message("a")
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))

	next := read("g", 3)
	require.Equal(t, []string{"", "Zürich", "a", "\u2028\""}, next.Keys())
	require.Equal(t, twice.Keys(), next.Keys())
	release(next, "a")
	require.Nil(t, next.Release("never failed"))
	require.Equal(t, []string{"", "Zürich", "\u2028\""}, next.Keys())
	require.Equal(t, next.Keys(), read("g", 3).Keys())
	require.Equal(t, []string{"of another group"}, read("other", 3).Keys())
	require.Equal(t, []string{"of another partition"}, read("g", 4).Keys())
	fail(next, "a")
	require.Contains(t, read("g", 3).Keys(), "a")
	remove := next.Release("a")
	fail(next, "a") // while the first message is being removed
	require.NoError(t, remove(t.Context()))
	require.Contains(t, read("g", 3).Keys(), "a")
}

// A key whose message may not be stored gets another one.
func TestFailedKeyIsStoredAgain(t *testing.T) {
	k, err := ReadFailed(t.Context(), inmemory.New(inmemory.Options{}), "orders", "g", 0)
	require.NoError(t, err)
	one, _ := k.Message("a")
	k.Stored("a", false)
	two, _ := k.Message("a")
	require.NotNil(t, two)
	require.NotEqual(t, one.ID, two.ID)
}

func TestFailedKeysAreBounded(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	k, err := ReadFailed(t.Context(), b, "orders", "g", 0)
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
	_, err := ReadFailed(t.Context(), b, "orders", "g", 0)
	require.Error(t, err)
	require.False(t, errors.Is(err, backend.ErrGone))
}
