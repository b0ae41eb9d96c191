package codec

import (
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

// Limit returns a codec that encodes and decodes with c, but refuses payloads of more than the
// given number of bytes with a *SizeError.
func Limit(bytes int, c Codec) Codec { return limited{c, bytes} }

type limited struct {
	Codec
	bytes int
}

var _ Decoder = limited{}

func (l limited) Marshal(v any) ([]byte, error) {
	data, err := l.Codec.Marshal(v)
	if err == nil {
		err = l.check(data)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

func (l limited) Unmarshal(data []byte, v any) error {
	if err := l.check(data); err != nil {
		return err
	}
	return l.Codec.Unmarshal(data, v)
}

func (l limited) Decode(contentType string, data []byte, v any) error {
	if err := l.check(data); err != nil {
		return err
	}
	return Decode(l.Codec, contentType, data, v)
}

func (l limited) refusal(contentType string) error { return refusal(l.Codec, contentType) }

func (l limited) check(data []byte) error {
	if len(data) > l.bytes {
		return &SizeError{Bytes: len(data), Limit: l.bytes}
	}
	return nil
}

// A SizeError means that a payload is larger than [Limit] allows. It matches eventbus.ErrTooLarge.
type SizeError struct{ Bytes, Limit int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("codec: payload of %d bytes, want at most %d", e.Bytes, e.Limit)
}

// Unwrap returns eventbus.ErrTooLarge.
func (e *SizeError) Unwrap() error { return backend.ErrTooLarge }
