package inmemory

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

const positionLen = 16 // hexadecimal digits: positions compare as offsets do

// positions returns the positions of all offsets of a page, of which first is the
// first.
func positions(first uint64) string {
	var text strings.Builder
	text.Grow(pageSize * positionLen)
	var digits [positionLen]byte
	for offset := first; offset < first+pageSize; offset++ {
		for i := range digits {
			digits[i] = "0123456789abcdef"[offset>>(60-4*i)&15]
		}
		text.Write(digits[:])
	}
	return text.String()
}

func parsePosition(p string) (offset uint64, err error) {
	if len(p) == positionLen {
		offset, err = strconv.ParseUint(p, 16, 64)
	}
	if len(p) != positionLen || err != nil {
		return 0, fmt.Errorf("%w: %q is not a position", backend.ErrRefused, p)
	}
	return offset, nil
}
