package cbor_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/codec/cbor"
)

type reading struct {
	Sensor string    `json:"sensor"`
	At     time.Time `json:"at"`
	Values []float64 `json:"values,omitempty"`
	Blob   []byte    `cbor:"b"`
}

func Example() {
	readings := eventbus.Topic[reading]{Name: "readings", Codec: cbor.Codec{}}
	e, err := readings.Event(reading{Sensor: "roof", Values: []float64{21.5}, Blob: []byte{1, 2, 3}})
	if err != nil {
		panic(err)
	}
	got, err := readings.Decode(e)
	fmt.Println(e.ContentType, got.Sensor, got.Values, got.Blob, err)
	// Output: application/cbor roof [21.5] [1 2 3] <nil>
}

// A decoded value equals the encoded one, times included.
func TestRoundTrip(t *testing.T) {
	at := time.Date(2026, 11, 23, 6, 30, 0, 123456789, time.FixedZone("", 3600))
	want := reading{"roof", at, []float64{1, 2.5}, []byte{0, 255}}
	data, err := cbor.Codec{}.Marshal(want)
	require.NoError(t, err)
	again, err := cbor.Codec{}.Marshal(want)
	require.NoError(t, err)
	require.Equal(t, data, again, "the encoding is deterministic")
	var got reading
	require.NoError(t, cbor.Codec{}.Unmarshal(data, &got))
	require.True(t, at.Equal(got.At), "%v", got.At)
	got.At = want.At
	require.Equal(t, want, got)
}

// Hostile payloads are refused before they take memory.
func TestBounds(t *testing.T) {
	nested := func(depth int) []byte { return append(bytes.Repeat([]byte{0x81}, depth), 0) } // [[[…0]]]
	var v any
	require.NoError(t, cbor.Codec{}.Unmarshal(nested(32), &v))
	require.ErrorContains(t, cbor.Codec{}.Unmarshal(nested(33), &v), "exceeded max nested level 32")
	require.ErrorContains(t, cbor.Codec{MaxDepth: 8}.Unmarshal(nested(9), &v), "exceeded max nested level 8")

	many := func(n int) []byte { // an array of n zeros
		return append([]byte{0x9a, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, make([]byte, n)...)
	}
	require.NoError(t, cbor.Codec{}.Unmarshal(many(131072), &v))
	require.ErrorContains(t, cbor.Codec{}.Unmarshal(many(131073), &v), "exceeded max number of elements 131072")
	require.ErrorContains(t, cbor.Codec{MaxElements: 16}.Unmarshal(many(17), &v), "exceeded max number of elements 16")
	require.Error(t, cbor.Codec{MaxElements: 1 << 30}.Unmarshal([]byte{0x9a, 0x3f, 0xff, 0xff, 0xff}, &v), "a length without elements")

	for name, payload := range map[string][]byte{
		"empty": nil, "two values": {0, 0}, "cut": {0x82, 0}, "a key twice": {0xa2, 0x61, 'a', 1, 0x61, 'a', 2},
	} {
		require.Error(t, cbor.Codec{}.Unmarshal(payload, &v), name)
	}
	require.ErrorContains(t, cbor.Codec{MaxDepth: -1}.Unmarshal([]byte{0}, &v), "cbor: ")
}
