// Package cbor provides a codec for CBOR (RFC 8949), a binary format for the values of JSON, and for
// bytes and times.
package cbor

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/seed41896749/eventbus/codec"
)

// Codec encodes and decodes CBOR. Struct fields are named by their cbor or json tags. Marshal
// writes deterministic CBOR, and times with nanoseconds and zone.
//
// Unmarshal refuses maps with duplicate keys. To refuse small payloads that would take a lot of
// memory, it checks MaxDepth and MaxElements before it decodes a value. It fails if one of these
// fields is below its minimum.
type Codec struct {
	MaxDepth    int // how deep arrays and maps may be nested, at least 4; default 32
	MaxElements int // how many elements an array or map may have, at least 16; default 131,072
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

// Unmarshal decodes data into v, a pointer. It fails if data is not exactly one value, or exceeds
// MaxDepth or MaxElements.
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
