package codec

import (
	"github.com/seed41896749/eventbus"
)

// ByContentType returns a codec that writes with the first codec, and reads an event with
// the first of all codecs that accepts the event's content type ([eventbus.Accepts]). So
// the first codec reads events without a content type. If no codec accepts it, the error
// is a *ContentTypeError with all content types. ByContentType panics if a codec is nil.
func ByContentType(writes eventbus.Codec, reads ...eventbus.Codec) eventbus.Codec {
	all := append([]eventbus.Codec{writes}, reads...)
	for _, c := range all {
		if c == nil {
			panic("codec: ByContentType needs codecs that are not nil")
		}
	}
	return choice{writes, all}
}

type choice struct {
	eventbus.Codec // that writes
	all            []eventbus.Codec
}

var _ eventbus.EventDecoder = choice{}

func (c choice) DecodeEvent(e *eventbus.Event, v any) error {
	var want []string
	for _, one := range c.all {
		if eventbus.Accepts(one, e.ContentType) {
			return eventbus.DecodeEvent(one, e, v)
		}
		want = append(want, one.ContentType())
	}
	return &eventbus.ContentTypeError{Got: e.ContentType, Want: want}
}
