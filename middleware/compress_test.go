package middleware_test

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/middleware"
)

// bomb is 96 MiB of zeros, compressed, without a size.
func bomb(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	require.NoError(t, err)
	zeros := make([]byte, 1<<20)
	for range 96 {
		_, err := w.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestBombsAreRefused(t *testing.T) {
	v := envelope(t, middleware.EnvelopeOptions{Compress: &middleware.Compress{}})
	zstdOf := func(payload []byte) eventbus.Event {
		return eventbus.Event{ID: "1", Headers: eventbus.Headers{{Name: "content-encoding", Value: "zstd"}}, Payload: payload}
	}
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for name, e := range map[string]eventbus.Event{
		"bomb":                    zstdOf(bomb(t)),
		"one byte more than fits": zstdOf(encoder.EncodeAll(make([]byte, eventbus.MaxPayload+1), nil)),
		"large size, few bytes":   zstdOf(encoder.EncodeAll(make([]byte, 16<<20), nil)[:100]),
		"noise":                   zstdOf([]byte("noise")),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			opened := e
			require.Error(t, v.Open(t.Context(), &opened))
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(80<<20), "bytes allocated")
			require.Equal(t, e, opened, "after an error the event is unchanged")

			synctest.Test(t, func(t *testing.T) {
				handled, letter := receive(t, v, e)
				require.Empty(t, handled)
				require.Equal(t, eventbus.ReasonPermanent, letter.Reason)
			})
		})
	}
	fits := zstdOf(encoder.EncodeAll(make([]byte, eventbus.MaxPayload), nil))
	require.NoError(t, v.Open(t.Context(), &fits))
	require.Len(t, fits.Payload, eventbus.MaxPayload)
}

// A compressed payload that was cut is damaged, even if nothing of it is left.
func TestCutCompressedPayloadIsDamaged(t *testing.T) {
	v := envelope(t, steps(t, 1))
	bus := sealing(t, v)
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: bytes.Repeat([]byte("apples "), 300)}))
	stored := bus.Published("orders")[0]
	for n := range len(stored.Payload) {
		e := stored
		e.Payload = stored.Payload[:n]
		require.Error(t, v.Open(t.Context(), &e), "cut to %d bytes", n)
	}
}
