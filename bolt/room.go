package bolt

import (
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

// usualReserve is the default of Options.MinFree, unless a twentieth of the disk is less.
const usualReserve = 64 << 20

// A room bounds how many bytes one transaction may publish. The rest of the disk is for
// acknowledgements and leases, which write too: on a full disk no event could be settled, so that
// the disk would stay full.
type room struct {
	known   bool
	endless bool // the system does not say how much is free
	bytes   int64
}

// take takes the bytes of a message, or returns ErrFull.
func (r *room) take(t *txn, size int, minFree int64) error {
	if !r.known {
		r.known = true
		free, total, ok := disk(t.DB().Path())
		if minFree == 0 {
			minFree = min(usualReserve, total/20)
		}
		s := t.DB().Stats()
		r.bytes, r.endless = free+int64(s.FreePageN)*int64(t.DB().Info().PageSize)-minFree, !ok
	}
	if r.bytes -= int64(size); r.bytes < 0 && !r.endless {
		return fmt.Errorf("%w: the disk has less than min_free left", backend.ErrFull)
	}
	return nil
}
