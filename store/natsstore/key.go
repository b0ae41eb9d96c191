package natsstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxKey is the most bytes of an escaped key. Its subject must fit, together with others, into
// the 4,096 bytes of a line of the protocol.
const maxKey = 2048

// escape returns the key in the bucket for a key of the store: one token of a subject. Letters,
// digits, '-', '_' and '/' stay; any other byte becomes '=' and two hexadecimal digits. The
// empty key becomes "=". If the result would be too long, it is "==" and the SHA-256 of the key.
// No two keys have the same result.
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
