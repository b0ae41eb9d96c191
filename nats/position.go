package nats

import (
	"fmt"
	"strconv"

	"github.com/seed41896749/eventbus/backend"
)

// A position is a sequence number of the stream, with leading zeros.
const positionLen = 20

func position(seq uint64) string { return string(appendPosition(make([]byte, 0, positionLen), seq)) }

// appendPosition writes a position behind b.
func appendPosition(b []byte, seq uint64) []byte {
	var digits [positionLen]byte
	for i := positionLen - 1; i >= 0; i-- {
		digits[i] = byte('0' + seq%10)
		seq /= 10
	}
	return append(b, digits[:]...)
}

func parsePosition(p string) (uint64, error) {
	seq, err := strconv.ParseUint(p, 10, 64)
	if len(p) != positionLen || err != nil {
		return 0, fmt.Errorf("%w: %.50q is not a position in a stream", backend.ErrRefused, p)
	}
	return seq, nil
}
