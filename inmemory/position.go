package inmemory

import (
	"fmt"
	"strconv"

	"github.com/seed41896749/eventbus/internal/slab"
)

const positionLen = 16 // hexadecimal digits: positions compare as offsets do

// position returns the position of an offset in the log.
func position(mem *slab.Slab, offset uint64) string {
	var digits [positionLen]byte
	for i := range digits {
		digits[i] = "0123456789abcdef"[offset>>(60-4*i)&15]
	}
	return mem.Text(digits[:])
}

func parsePosition(p string) (offset uint64, err error) {
	if len(p) == positionLen {
		offset, err = strconv.ParseUint(p, 16, 64)
	}
	if len(p) != positionLen || err != nil {
		return 0, fmt.Errorf("%q is not a position", p)
	}
	return offset, nil
}
