package store_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/store"
	"github.com/seed41896749/eventbus/store/storetest"
)

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, storetest.TestStore(t.Context(), store.NewMemory(store.MemoryOptions{})))
	})
}

// A value is forgotten when there are more than Max, or more bytes than MaxBytes. The value
// that was set first goes first.
func TestMemoryIsBounded(t *testing.T) {
	m := store.NewMemory(store.MemoryOptions{Max: 2, MaxBytes: 100})
	set := func(key string, size int) {
		t.Helper()
		require.NoError(t, m.Set(t.Context(), key, make([]byte, size), time.Hour))
	}
	for _, key := range []string{"a", "b", "a", "c"} { // b was set first
		set(key, 10)
	}
	require.Equal(t, []string{"a", "c"}, keys(t, m, "a", "b", "c"), "more than Max")
	set("d", 89) // with c exactly 100 bytes and one key too many
	require.Equal(t, []string{"d"}, keys(t, m, "a", "c", "d"), "a is beyond Max, c beyond MaxBytes")
	set("e", 9)
	require.Equal(t, []string{"d", "e"}, keys(t, m, "d", "e"), "exactly MaxBytes")
	set("d", 1)
	set("f", 98)
	require.Equal(t, []string{"f"}, keys(t, m, "d", "e", "f"), "a replaced value gives its bytes back")
	set("g", 100)
	require.Empty(t, keys(t, m, "f", "g"), "larger than MaxBytes")
}

// Values whose time is over do not stay in memory until Max is reached.
func TestMemoryOfExpiredValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := store.NewMemory(store.MemoryOptions{MaxBytes: 1 << 30})
		for i := range 100 {
			require.NoError(t, m.Set(t.Context(), fmt.Sprint(i), make([]byte, 1<<20), time.Minute))
		}
		time.Sleep(time.Minute)
		require.NoError(t, m.Set(t.Context(), "now", nil, time.Minute))
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		require.Less(t, stats.HeapAlloc, uint64(50<<20))
		require.Equal(t, []string{"now"}, keys(t, m, "99", "now"))
	})
}

func TestMemoryRefusesBadOptions(t *testing.T) {
	require.Panics(t, func() { store.NewMemory(store.MemoryOptions{Max: -1}) })
	require.Panics(t, func() { store.NewMemory(store.MemoryOptions{MaxBytes: -1}) })
}

// keys returns the names that have a value.
func keys(t *testing.T, s store.Store, names ...string) (found []string) {
	t.Helper()
	for _, name := range names {
		_, ok, err := s.Get(t.Context(), name)
		require.NoError(t, err)
		if ok {
			found = append(found, name)
		}
	}
	return found
}

func Example() {
	ctx := context.Background()
	seen := store.NewMemory(store.MemoryOptions{Max: 1000})
	if err := seen.Set(ctx, "order-7", []byte("shipped"), time.Hour); err != nil {
		panic(err)
	}
	value, ok, err := seen.Get(ctx, "order-7")
	fmt.Println(string(value), ok, err)
	// Output: shipped true <nil>
}
