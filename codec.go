package eventbus

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

// An EventDecoder is a [Codec] that decodes by more than the payload, such as the
// ContentType of the event. It must not change e.
type EventDecoder interface {
	Codec
	DecodeEvent(e *Event, v any) error
}

// DecodeEvent decodes the payload of e into v, a pointer. If c is no [EventDecoder] and
// does not accept the ContentType of e, the error is a *ContentTypeError.
func DecodeEvent(c Codec, e *Event, v any) error {
	if d, ok := c.(EventDecoder); ok {
		return d.DecodeEvent(e, v)
	}
	if !Accepts(c, e.ContentType) {
		return &ContentTypeError{Got: e.ContentType, Want: []string{c.ContentType()}}
	}
	return c.Unmarshal(e.Payload, v)
}

// Accepts reports whether c reads payloads of a content type. It does if the media types
// are equal, without their parameters, or if the content type is a kind of it with a
// suffix, such as application/cloudevents+json of application/json. Each codec accepts an
// event without a content type, and a codec without one accepts each event.
func Accepts(c Codec, contentType string) bool {
	got, want := mediaType(contentType), mediaType(c.ContentType())
	_, kind, _ := strings.Cut(want, "/")
	return got == "" || want == "" || got == want || strings.HasSuffix(got, "+"+kind)
}

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// A ContentTypeError is the error of an event whose ContentType its codec does not read.
type ContentTypeError struct {
	Got  string
	Want []string // the content types that the codec reads
}

func (e *ContentTypeError) Error() string {
	return fmt.Sprintf("eventbus: content type %q, want %q", e.Got, strings.Join(e.Want, ", "))
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
