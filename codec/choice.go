package codec

// ByContentType returns a codec that writes with the first codec, and reads a payload with
// the first of writes and reads that accepts its content type ([Accepts]). So writes reads
// payloads without a content type. If no codec accepts it, the error is a *ContentTypeError
// with all content types. ByContentType panics if a codec is nil.
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
	Codec // that writes
	all   []Codec
}

var _ Decoder = choice{}

func (c choice) Decode(contentType string, data []byte, v any) error {
	var want []string
	for _, one := range c.all {
		if Accepts(one, contentType) {
			return Decode(one, contentType, data, v)
		}
		want = append(want, one.ContentType())
	}
	return &ContentTypeError{Got: contentType, Want: want}
}
