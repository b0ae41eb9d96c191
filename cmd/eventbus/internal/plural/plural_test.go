package plural_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
)

func TestOf(t *testing.T) {
	require.Equal(t, "0 events", plural.Of(0, "event"))
	require.Equal(t, "1 event", plural.Of(1, "event"))
	require.Equal(t, "2 events", plural.Of(int64(2), "event"))
}
