package operator_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
)

func TestTimestamps(t *testing.T) {
	now := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-11-20T10:00:00Z": time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		"90m ago":              now.Add(-90 * time.Minute),
		"1h30m ago":            now.Add(-90 * time.Minute),
		"2d ago":               now.Add(-48 * time.Hour),
	} {
		got, ok := operator.Timestamp(text, now)
		require.True(t, ok, text)
		require.True(t, want.Equal(got), "%s: %s", text, got)
	}
	for _, text := range []string{"", "ago", " ago", "2h", "-2h ago", "yesterday", "2026-11-20", "xd ago", "-1d ago", "99999999d ago"} {
		_, ok := operator.Timestamp(text, now)
		require.False(t, ok, text)
	}
}

func TestTimesOfOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for text, want := range map[string]backend.Start{
			"earliest": backend.StartEarliest, "latest": backend.StartLatest, "2h ago": backend.StartAt(now.Add(-2 * time.Hour)), "7-1": backend.StartAfter("7-1"),
		} {
			got, err := operator.Start(text)
			require.NoError(t, err)
			require.Equal(t, want, got, text)
		}
		for _, text := range []string{"", "earlist"} {
			_, err := operator.Start(text)
			require.Error(t, err, text)
		}
		end, err := operator.End("90m")
		require.NoError(t, err)
		require.Equal(t, now.Add(90*time.Minute), end)
		end, err = operator.End("")
		require.NoError(t, err)
		require.Zero(t, end)
		for _, text := range []string{"2h ago", "0s", "-1h", "soon", "1999-01-01T00:00:00Z"} {
			_, err := operator.End(text)
			require.Error(t, err, text)
		}
	})
}

// An operator changes a group that exists, in a topic that a broker stores.
func TestAdminChecksNames(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	defer b.Close()
	for _, topic := range []string{"orders", partition.NumberTopic("parts"), partition.Topic("parts", 0)} {
		require.NoError(t, backend.DeclareGroup(t.Context(), b, topic, "billing", backend.StartEarliest))
	}
	for want, names := range map[string][2]string{
		"": {"orders", "billing"},
		`orders has no group "biling"; did you mean billing?`:                                                                    {"orders", "biling"},
		`there is no topic "order"; did you mean orders?`:                                                                        {"order", "billing"},
		"parts has partitions, each of which is a topic of its own, such as parts.partition-0: eventbus topics --all lists them": {"parts", "billing"},
	} {
		_, err := operator.Admin(t.Context(), b, names[0], names[1])
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
	_, err := operator.Admin(t.Context(), struct{ backend.Backend }{}, "orders", "")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Equal(t, int64(0), operator.Unsettled(t.Context(), b, "orders", "billing"))
	require.Equal(t, int64(backend.Unknown), operator.Unsettled(t.Context(), b, "orders", "nobody"))
}
