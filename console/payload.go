package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
)

// A payloadFormat is a way to show a payload.
type payloadFormat string

const (
	formatJSON payloadFormat = "json"
	formatCBOR payloadFormat = "cbor"
	formatText payloadFormat = "text"
	formatHex  payloadFormat = "hex"
)

// A shownPayload is a payload as text.
type shownPayload struct {
	Text   string
	Format payloadFormat
	Size   int // bytes of the payload
	Cut    int // bytes of it that are not shown
}

const (
	maxText      = 64 << 10 // bytes of a payload that are shown as text or JSON
	maxHex       = 8 << 10  // bytes that are shown in hex, because a dump is five times as long
	maxJSONDepth = 64       // of nested JSON that is indented
)

// showPayload returns a payload in a form. A form that the payload does not have, and another form than the
// known ones, mean the best one.
func showPayload(payload []byte, f payloadFormat, contentType string) shownPayload {
	switch f {
	case formatText, formatHex:
	default:
		if text, ok := cborText(payload); ok && (f == formatCBOR || f != formatJSON && hasFormat(contentType, "cbor")) {
			return shownPayload{printable(text), formatCBOR, len(payload), 0}
		}
		if text, ok := indentJSON(payload); ok {
			return shownPayload{printable(text), formatJSON, len(payload), 0}
		}
		if f = formatHex; isText(payload) {
			f = formatText
		}
	}
	most := maxText
	if f == formatHex {
		most = maxHex
	}
	part := payload[:min(len(payload), most)]
	s := shownPayload{Format: f, Size: len(payload), Cut: len(payload) - len(part)}
	if f == formatHex {
		s.Text = hex.Dump(part)
	} else {
		s.Text = printable(string(part))
	}
	return s
}

// indentJSON returns JSON with a line for each value. It returns false for another payload, and for
// JSON that is too long or too deep.
func indentJSON(payload []byte) (string, bool) {
	if len(payload) == 0 || len(payload) > maxText || jsonDepth(payload) > maxJSONDepth {
		return "", false
	}
	var b bytes.Buffer
	if json.Indent(&b, payload, "", "  ") != nil {
		return "", false
	}
	return b.String(), true
}

// jsonDepth returns how deep JSON is nested, or more.
func jsonDepth(data []byte) int {
	now, most := 0, 0
	for _, c := range data {
		switch c {
		case '[', '{':
			now++
			most = max(most, now)
		case ']', '}':
			now--
		}
	}
	return most
}

// isText reports whether a payload is text: UTF-8 without control characters.
func isText(payload []byte) bool {
	part := payload[:min(len(payload), maxText)]
	for range utf8.UTFMax - 1 { // the cut may divide the last character
		if r, n := utf8.DecodeLastRune(part); r == utf8.RuneError && n == 1 && len(part) < len(payload) {
			part = part[:len(part)-1]
		}
	}
	if !utf8.Valid(part) {
		return false
	}
	return bytes.IndexFunc(part, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' }) < 0
}

const (
	maxCBORDepth = 32          // of nested arrays, maps and tags
	maxDiagnosis = 4 * maxText // bytes of text, which has up to 20 times the size of the payload
)

// cborText returns a payload of CBOR in the diagnostic notation of RFC 8949, with a line for each
// value. It returns false for another payload, and for one that is too long or too deep.
func cborText(payload []byte) (string, bool) {
	if len(payload) == 0 || len(payload) > maxText {
		return "", false
	}
	mode, err := cbor.DiagOptions{MaxNestedLevels: maxCBORDepth}.DiagMode()
	if err != nil {
		return "", false
	}
	text, err := mode.Diagnose(payload)
	if err != nil {
		return "", false
	}
	return wrapDiagnostic(text)
}

// hasFormat reports whether a content type is of a format, such as "json" or "cbor".
func hasFormat(contentType, format string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/"+format || strings.HasSuffix(kind, "+"+format))
}

// wrapDiagnostic returns diagnostic notation with a line for each value. It returns false if the result is too
// long.
func wrapDiagnostic(text string) (string, bool) {
	var b strings.Builder
	depth := 0
	line := func() {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat("  ", depth))
	}
	for i := 0; i < len(text) && b.Len() <= maxDiagnosis; i++ {
		switch c := text[i]; c {
		case '"', '\'':
			end := quotedLen(text[i:])
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
	return b.String(), b.Len() <= maxDiagnosis
}

// quotedLen returns the length of the quoted text with which s begins.
func quotedLen(s string) int {
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
