package count_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/cmd/eventbus/internal/count"
)

func TestOf(t *testing.T) {
	require.Equal(t, "0 events", count.Of(0, "event"))
	require.Equal(t, "1 event", count.Of(1, "event"))
	require.Equal(t, "2 events", count.Of(int64(2), "event"))
}
