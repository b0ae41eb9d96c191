// Package codec turns Go values into event payloads and back.
//
// [JSON] is the default codec of an eventbus.Topic, and [Raw] leaves bytes and strings as they are.
// [ByContentType] reads several formats, [Versions] reads payloads of older versions, [Fields]
// reads flat payloads of other programs, and [Limit] limits the size of payloads. Codecs that need
// a library are in packages of their own, codec/protobuf and codec/cbor.
package codec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// A Codec turns values into payloads and back. It must be safe for concurrent use.
type Codec interface {
	ContentType() string                // the content type of payloads; may be ""
	Marshal(v any) ([]byte, error)      // encodes v
	Unmarshal(data []byte, v any) error // decodes data into v, a pointer
}

// A Decoder is a [Codec] that chooses how to decode a payload by its content type.
type Decoder interface {
	Codec
	Decode(contentType string, data []byte, v any) error
}

// Decode decodes data into v, a pointer. If c is a [Decoder], it calls c.Decode. Otherwise it calls
// c.Unmarshal, or returns a *ContentTypeError if c does not accept the content type.
func Decode(c Codec, contentType string, data []byte, v any) error {
	if d, ok := c.(Decoder); ok {
		return d.Decode(contentType, data, v)
	}
	if err := refusal(c, contentType); err != nil {
		return err
	}
	return c.Unmarshal(data, v)
}

// refusal returns a *ContentTypeError if c is known not to read a content type. A Decoder that
// knows has a method of this name.
func refusal(c Codec, contentType string) error {
	switch d := c.(type) {
	case interface {
		refusal(contentType string) error
	}:
		return d.refusal(contentType)
	case Decoder:
		return nil
	}
	if Accepts(c, contentType) {
		return nil
	}
	return &ContentTypeError{Got: contentType, Want: []string{c.ContentType()}}
}

// Accepts reports whether c reads payloads of a content type. It compares media types without their
// parameters. A codec accepts its own media type, and any type that ends with "+" and its own
// subtype: for example, a codec for application/json accepts application/cloudevents+json. Every
// codec accepts payloads without a content type, and a codec without a content type accepts every
// payload.
func Accepts(c Codec, contentType string) bool {
	got, want := mediaType(contentType), mediaType(c.ContentType())
	_, kind, _ := strings.Cut(want, "/")
	return got == "" || want == "" || got == want || strings.HasSuffix(got, "+"+kind)
}

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// A ContentTypeError means that a codec does not read payloads of the given content type.
type ContentTypeError struct {
	Got  string   // the content type of the payload
	Want []string // the content types that the codec reads
}

func (e *ContentTypeError) Error() string {
	return fmt.Sprintf("codec: content type %q, want %q", e.Got, strings.Join(e.Want, ", "))
}

// JSON is the codec of encoding/json.
type JSON struct{}

var _ Codec = JSON{}

// ContentType is application/json.
func (JSON) ContentType() string { return "application/json" }

// Marshal calls json.Marshal.
func (JSON) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal calls json.Unmarshal.
func (JSON) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// Raw is for payloads that your program encodes and decodes itself. The Go value is a []byte or a
// string. Media is the content type, by default application/octet-stream.
type Raw struct{ Media string }

var _ Codec = Raw{}

// ContentType returns Media or its default.
func (r Raw) ContentType() string { return cmp.Or(r.Media, "application/octet-stream") }

// Marshal returns the bytes of v, a []byte or a string. A []byte is not copied.
func (r Raw) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case string:
		return []byte(v), nil
	}
	return nil, fmt.Errorf("codec: raw payload is a %T, want []byte or string", v)
}

// Unmarshal stores a copy of data in v, a *[]byte or a *string.
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
