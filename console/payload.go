package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"unicode"
	"unicode/utf8"
)

// A form is how a payload is shown.
type form string

const (
	asJSON form = "json"
	asCBOR form = "cbor"
	asText form = "text"
	asHex  form = "hex"
)

// A shown is a payload as text.
type shown struct {
	Text string
	Form form
	Size int // bytes of the payload
	Cut  int // bytes of it that are not shown
}

const (
	mostText  = 64 << 10 // bytes of a payload that are shown as text or JSON
	mostHex   = 8 << 10  // bytes that are shown in hex, because a dump is five times as long
	mostDepth = 64       // of nested JSON that is indented
)

// show returns a payload in a form. A form that the payload does not have, and another form than the
// known ones, mean the best one.
func show(payload []byte, f form, contentType string) shown {
	switch f {
	case asText, asHex:
	default:
		if text, ok := diagnosed(payload); ok && (f == asCBOR || f != asJSON && ofType(contentType, "cbor")) {
			return shown{printable(text), asCBOR, len(payload), 0}
		}
		if text, ok := indented(payload); ok {
			return shown{printable(text), asJSON, len(payload), 0}
		}
		if f = asHex; isText(payload) {
			f = asText
		}
	}
	most := mostText
	if f == asHex {
		most = mostHex
	}
	part := payload[:min(len(payload), most)]
	s := shown{Form: f, Size: len(payload), Cut: len(payload) - len(part)}
	if f == asHex {
		s.Text = hex.Dump(part)
	} else {
		s.Text = printable(string(part))
	}
	return s
}

// indented returns JSON with a line for each value. It returns false for another payload, and for
// JSON that is too long or too deep.
func indented(payload []byte) (string, bool) {
	if len(payload) == 0 || len(payload) > mostText || depth(payload) > mostDepth {
		return "", false
	}
	var b bytes.Buffer
	if json.Indent(&b, payload, "", "  ") != nil {
		return "", false
	}
	return b.String(), true
}

// depth returns how deep JSON is nested, or more.
func depth(data []byte) int {
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
	part := payload[:min(len(payload), mostText)]
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
