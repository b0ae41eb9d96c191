package natsstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxKey is the most bytes of an escaped key. A subject must fit, with others, into the 4,096
// bytes of a line of the protocol.
const maxKey = 2048

// escape returns the key of the bucket for a key of the store: one token of a subject. It
// keeps letters, digits, '-', '_' and '/', and writes each other byte as '=' and two
// hexadecimal digits. The empty key is "=". If the result would be too long, it is "==" and
// the SHA-256 of the key, so that no two keys have the same result.
func escape(key string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(key) + 16)
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '/':
			b.WriteByte(c)
		default:
			b.WriteByte('=')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	switch {
	case key == "":
		return "="
	case b.Len() > maxKey:
		sum := sha256.Sum256([]byte(key))
		return "==" + hex.EncodeToString(sum[:])
	}
	return b.String()
}
