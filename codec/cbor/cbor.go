// Package cbor has the codec of CBOR (RFC 8949), a binary form of JSON's values, and of
// bytes and times.
package cbor

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/seed41896749/eventbus/codec"
)

// Codec is the codec of CBOR. Fields of structs have the names of their cbor or json tags.
// Marshal writes deterministic CBOR, and times with nanoseconds and zone. Unmarshal refuses
// a map with the same key twice. It checks MaxDepth and MaxElements before it decodes a
// value, to refuse a small payload that would need much memory. Unmarshal fails if one of
// these fields is below its minimum.
type Codec struct {
	MaxDepth    int // the most levels of nested arrays and maps, at least 4; default 32
	MaxElements int // the most elements of one array or map, at least 16; default 131,072
}

var _ codec.Codec = Codec{}

// ContentType is application/cbor.
func (Codec) ContentType() string { return "application/cbor" }

// Marshal encodes v.
func (Codec) Marshal(v any) ([]byte, error) {
	o := cbor.CoreDetEncOptions()
	o.Time, o.TimeTag = cbor.TimeRFC3339Nano, cbor.EncTagRequired
	mode, err := o.EncMode()
	if err != nil {
		return nil, fmt.Errorf("cbor: %w", err)
	}
	return mode.Marshal(v)
}

// Unmarshal decodes data into v, a pointer. It returns an error if data is not exactly one
// value, or exceeds MaxDepth or MaxElements.
func (c Codec) Unmarshal(data []byte, v any) error {
	mode, err := cbor.DecOptions{
		MaxNestedLevels: c.MaxDepth, MaxArrayElements: c.MaxElements, MaxMapPairs: c.MaxElements,
		DupMapKey: cbor.DupMapKeyEnforcedAPF,
	}.DecMode()
	if err != nil {
		return fmt.Errorf("cbor: %w", err)
	}
	return mode.Unmarshal(data, v)
}
