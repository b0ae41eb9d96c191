package nearest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/nearest"
)

// A parameter that may be part of a password is not shown.
func TestParameter(t *testing.T) {
	known := []string{"max_bytes", "max_messages"}
	require.EqualError(t, nearest.Parameter("max_byte", known), `unknown parameter "max_byte"; did you mean "max_bytes"?`)
	require.EqualError(t, nearest.Parameter("x", known), `unknown parameter "x"; known: max_bytes, max_messages`)
	for _, secret := range []string{":secret@host", "Secret", "se cret", strings.Repeat("secret", 9)} {
		err := nearest.Parameter(secret, known)
		require.NotContains(t, err.Error(), secret)
		require.ErrorContains(t, err, "max_bytes, max_messages")
	}
}

func TestOf(t *testing.T) {
	known := []string{"mem", "redis", "rediss", "nats", "max_messages", "once_window"}
	for name, want := range map[string]string{
		"meme": "mem", "rediz": "redis", "nat": "nats", "natz": "nats", "max_mesages": "max_messages", "redissss": "rediss",
		"window": "once_window", "max": "max_messages", "kafka": "", "amqp": "", "x": "", "": "",
	} {
		require.Equal(t, want, nearest.Of(name, known), name)
	}
	require.Empty(t, nearest.Of("x", nil))
}

func TestHint(t *testing.T) {
	require.Equal(t, `; did you mean "mem"?`, nearest.Hint("%q", "men", []string{"mem"}))
	require.Empty(t, nearest.Hint("%q", "kafka", []string{"mem"}))
}
