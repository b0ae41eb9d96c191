package codec

// ByContentType returns a codec that encodes with writes, and decodes with the first codec that
// accepts a payload's content type (see [Accepts]): writes, and then reads in order. Payloads
// without a content type are therefore decoded by writes. If no codec accepts the content type, the
// error is a *ContentTypeError with the content types of all of them. ByContentType panics if a
// codec is nil.
func ByContentType(writes Codec, reads ...Codec) Codec {
	all := append([]Codec{writes}, reads...)
	for _, c := range all {
		if c == nil {
			panic("codec: ByContentType needs codecs that are not nil")
		}
	}
	return choice{writes, all}
}

type choice struct {
	Codec // encodes values
	all   []Codec
}

var _ Decoder = choice{}

func (c choice) Decode(contentType string, data []byte, v any) error {
	for _, one := range c.all {
		if Accepts(one, contentType) {
			return Decode(one, contentType, data, v)
		}
	}
	return c.refusal(contentType)
}

func (c choice) refusal(contentType string) error {
	var want []string
	for _, one := range c.all {
		if Accepts(one, contentType) {
			return nil
		}
		want = append(want, one.ContentType())
	}
	return &ContentTypeError{Got: contentType, Want: want}
}
