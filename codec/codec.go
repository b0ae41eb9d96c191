// Package codec turns Go values into the payloads of events, and back. [JSON] is the
// default codec of an eventbus.Topic. [Raw] leaves bytes and texts as they are.
// [ByContentType] reads several formats, [Versions] reads old payloads, and [Limit] bounds
// payloads. Packages codec/protobuf and codec/cbor have the codecs that need a library.
package codec

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A Codec turns values into payloads and back. It is safe for concurrent use.
type Codec interface {
	ContentType() string
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// A Decoder is a [Codec] that decides by the content type of a payload how to decode it.
type Decoder interface {
	Codec
	Decode(contentType string, data []byte, v any) error
}

// Decode decodes data into v, a pointer. If c is no [Decoder] and does not accept the
// content type, the error is a *ContentTypeError.
func Decode(c Codec, contentType string, data []byte, v any) error {
	if d, ok := c.(Decoder); ok {
		return d.Decode(contentType, data, v)
	}
	if !Accepts(c, contentType) {
		return &ContentTypeError{Got: contentType, Want: []string{c.ContentType()}}
	}
	return c.Unmarshal(data, v)
}

// Accepts reports whether c reads payloads of a content type. It does if the media types,
// without parameters, are equal. It does too if the content type ends with the codec's
// subtype: a codec of application/json accepts application/cloudevents+json. Each codec
// accepts a payload without a content type. A codec without one accepts each payload.
func Accepts(c Codec, contentType string) bool {
	got, want := mediaType(contentType), mediaType(c.ContentType())
	_, kind, _ := strings.Cut(want, "/")
	return got == "" || want == "" || got == want || strings.HasSuffix(got, "+"+kind)
}

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// A ContentTypeError is the error of a payload whose content type its codec does not read.
type ContentTypeError struct {
	Got  string
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
