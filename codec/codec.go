// Package codec turns Go values into the payloads of events, and back. [JSON] is the
// default codec of an eventbus.Topic. [Raw] leaves bytes and texts as they are.
// [ByContentType] reads several formats, [Versions] also reads payloads of older versions,
// and [Limit] bounds the size of payloads. Packages codec/protobuf and codec/cbor have
// codecs that need a library.
package codec

import (
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

// A Decoder is a [Codec] that decides by the content type of a payload how to decode it.
type Decoder interface {
	Codec
	Decode(contentType string, data []byte, v any) error
}

// Decode decodes data into v, a pointer. It calls c.Decode if c is a [Decoder]. Otherwise
// it calls c.Unmarshal, or returns a *ContentTypeError if c does not accept the content
// type.
func Decode(c Codec, contentType string, data []byte, v any) error {
	if d, ok := c.(Decoder); ok {
		return d.Decode(contentType, data, v)
	}
	if err := refusal(c, contentType); err != nil {
		return err
	}
	return c.Unmarshal(data, v)
}

// refusal returns a *ContentTypeError if c is known not to read a content type. A Decoder
// has the method refusal if it knows that.
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

// Accepts reports whether c reads payloads of a content type. It compares media types
// without their parameters. A codec accepts its own media type, and each type that ends
// with "+" and the codec's subtype. So a codec of application/json accepts
// application/cloudevents+json. Each codec accepts a payload without a content type. A
// codec without a content type accepts each payload.
func Accepts(c Codec, contentType string) bool {
	got, want := mediaType(contentType), mediaType(c.ContentType())
	_, kind, _ := strings.Cut(want, "/")
	return got == "" || want == "" || got == want || strings.HasSuffix(got, "+"+kind)
}

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// A ContentTypeError reports that a payload has a content type that the codec does not read.
// [Decode] returns a *ContentTypeError.
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
