package nearest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/nearest"
)

func TestOf(t *testing.T) {
	known := []string{"mem", "redis", "rediss", "nats", "max_messages"}
	for name, want := range map[string]string{
		"meme": "mem", "rediz": "redis", "nat": "nats", "natz": "nats", "max_mesages": "max_messages", "redissss": "rediss", "": "mem",
	} {
		require.Equal(t, want, nearest.Of(name, known), name)
	}
	require.Empty(t, nearest.Of("x", nil))
}
