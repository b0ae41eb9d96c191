package each

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

func TestLabel(t *testing.T) {
	name := New()
	require.NoError(t, backend.CheckName(name))
	require.NotEqual(t, name, New())
	require.Equal(t, Group, Label(name))
	for _, group := range []string{"billing", "each-day", ""} {
		require.Equal(t, group, Label(group))
	}
}
