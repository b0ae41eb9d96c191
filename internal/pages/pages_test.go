package pages_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/pages"
)

// A meter records the sizes that a reader asks for.
type meter struct {
	*inmemory.Backend
	asked []int
}

func (m *meter) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	m.asked = append(m.asked, limit)
	return m.Backend.Read(ctx, topic, from, limit)
}

func filled(t *testing.T, n, size int) *meter {
	b := inmemory.New(inmemory.Options{})
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	for i := range n {
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: strconv.Itoa(i), Payload: make([]byte, size)}}))
	}
	return &meter{Backend: b}
}

// readAll reads until the end or an error.
func readAll(t *testing.T, m *meter, left *pages.Bounds) (ids []string, err error) {
	r := &pages.Reader{Backend: m, Topic: "orders", Bounds: left, Timeout: time.Second}
	for {
		ms, err := r.Next(t.Context(), pages.MostPage)
		if err != nil || len(ms) == 0 {
			return ids, err
		}
		for i := range ms {
			ids = append(ids, ms[i].ID)
		}
	}
}

func TestAReaderReadsEachEventOnce(t *testing.T) {
	m := filled(t, 1000, 10)
	ids, err := readAll(t, m, &pages.Bounds{Calls: 1000, Events: 10_000, Bytes: 1 << 30})
	require.NoError(t, err)
	require.Len(t, ids, 1000)
	for i, id := range ids {
		require.Equal(t, strconv.Itoa(i), id)
	}
	require.Less(t, len(m.asked), 20, "small events come in large pages: %v", m.asked)
}

// A page of large events has few of them, because a whole page is in memory.
func TestPagesOfLargeEventsAreSmall(t *testing.T) {
	m := filled(t, 40, 1<<20)
	_, err := readAll(t, m, &pages.Bounds{Calls: 1000, Events: 10_000, Bytes: 1 << 30})
	require.NoError(t, err)
	for _, n := range m.asked {
		require.LessOrEqual(t, n, 4, "%v", m.asked)
	}
}

func TestEachBoundEndsTheReading(t *testing.T) {
	for _, row := range []struct {
		name        string
		bounds      pages.Bounds
		least, most int // events
	}{
		{"calls", pages.Bounds{Calls: 2, Events: 1000, Bytes: 1 << 30}, 20, 20},
		{"events", pages.Bounds{Calls: 100, Events: 33, Bytes: 1 << 30}, 33, 33},
		{"bytes", pages.Bounds{Calls: 100, Events: 1000, Bytes: 10 << 10}, 10, 90},
		{"time", pages.Bounds{Calls: 100, Events: 1000, Bytes: 1 << 30, Until: time.Now().Add(-time.Second)}, 4, 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			ids, err := readAll(t, filled(t, 300, 1<<10), &row.bounds)
			require.ErrorIs(t, err, pages.ErrSpent)
			require.GreaterOrEqual(t, len(ids), row.least)
			require.LessOrEqual(t, len(ids), row.most)
		})
	}
}

func TestAPageHasAsManyEventsAsAsked(t *testing.T) {
	m := filled(t, 100, 10)
	left := &pages.Bounds{Calls: 10, Events: 100, Bytes: 1 << 20}
	for _, n := range []int{1, 3, 16} {
		ms, err := (&pages.Reader{Backend: m, Topic: "orders", Bounds: left, Timeout: time.Second}).Next(t.Context(), n)
		require.NoError(t, err)
		require.Len(t, ms, n)
	}
}

func TestAReaderReturnsTheErrorOfTheBackend(t *testing.T) {
	m := filled(t, 0, 0)
	_, err := readAll(t, m, &pages.Bounds{Calls: 1, Events: 1, Bytes: 1})
	require.ErrorIs(t, err, backend.ErrGone)
}
