package console

import (
	"mime"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

const (
	mostCBORDepth = 32           // of nested arrays, maps and tags
	mostDiagnosis = 4 * mostText // bytes of text, which has up to 20 times the size of the payload
)

// diagnosed returns a payload of CBOR in the diagnostic notation of RFC 8949, with a line for each
// value. It returns false for another payload, and for one that is too long or too deep.
func diagnosed(payload []byte) (string, bool) {
	if len(payload) == 0 || len(payload) > mostText {
		return "", false
	}
	mode, err := cbor.DiagOptions{MaxNestedLevels: mostCBORDepth}.DiagMode()
	if err != nil {
		return "", false
	}
	text, err := mode.Diagnose(payload)
	if err != nil {
		return "", false
	}
	return broken(text)
}

// ofType reports whether a content type is of a format, such as "json" or "cbor".
func ofType(contentType, format string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/"+format || strings.HasSuffix(kind, "+"+format))
}

// broken returns diagnostic notation with a line for each value. It returns false if the result is too
// long.
func broken(text string) (string, bool) {
	var b strings.Builder
	depth := 0
	line := func() {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat("  ", depth))
	}
	for i := 0; i < len(text) && b.Len() <= mostDiagnosis; i++ {
		switch c := text[i]; c {
		case '"', '\'':
			end := quoted(text[i:])
			b.WriteString(text[i : i+end])
			i += end - 1
		case '[', '{':
			b.WriteByte(c)
			if i+1 < len(text) && (text[i+1] == ']' || text[i+1] == '}') {
				i++
				b.WriteByte(text[i])
				break
			}
			depth++
			line()
		case ']', '}':
			depth--
			line()
			b.WriteByte(c)
		case ',':
			b.WriteByte(c)
			line()
			if i+1 < len(text) && text[i+1] == ' ' {
				i++
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), b.Len() <= mostDiagnosis
}

// quoted returns the length of the quoted text with which s begins.
func quoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return len(s)
}
