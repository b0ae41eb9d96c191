package codec

import (
	"bytes"
	"cmp"
	"fmt"
)

// Raw is the codec of payloads that the program encodes and decodes itself. The Go value is
// a []byte or a string. Media is the content type. Default: application/octet-stream.
type Raw struct{ Media string }

var _ Codec = Raw{}

// ContentType returns Media or its default.
func (r Raw) ContentType() string { return cmp.Or(r.Media, "application/octet-stream") }

// Marshal returns the bytes of v, which must be a []byte or a string. A []byte is not copied.
func (r Raw) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case string:
		return []byte(v), nil
	}
	return nil, fmt.Errorf("codec: raw payload is a %T, want []byte or string", v)
}

// Unmarshal stores a copy of data in v, which must be a *[]byte or a *string.
func (r Raw) Unmarshal(data []byte, v any) error {
	switch v := v.(type) {
	case *[]byte:
		*v = bytes.Clone(data)
	case *string:
		*v = string(data)
	default:
		return fmt.Errorf("codec: raw payload is read into a %T, want *[]byte or *string", v)
	}
	return nil
}
