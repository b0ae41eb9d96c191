package nats

import (
	"fmt"
	"strconv"

	"github.com/seed41896749/eventbus/backend"
)

// A position is a sequence number of the stream, with leading zeros.
const positionLen = 20

func position(seq uint64) string {
	s := strconv.FormatUint(seq, 10)
	return "00000000000000000000"[len(s):] + s
}

func parsePosition(p string) (uint64, error) {
	seq, err := strconv.ParseUint(p, 10, 64)
	if len(p) != positionLen || err != nil {
		return 0, fmt.Errorf("%w: %.50q is not a position in a stream", backend.ErrRefused, p)
	}
	return seq, nil
}
