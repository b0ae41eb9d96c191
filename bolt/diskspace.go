package bolt

import (
	"context"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

// defaultReserve is the default of Options.MinFree, unless a twentieth of the disk is less.
const defaultReserve = 64 << 20

// A spaceBudget limits how many bytes one transaction may publish. The rest of the disk is reserved for
// acknowledgements and leases, which write too: on a full disk no event could be settled, and the disk
// would stay full.
type spaceBudget struct {
	known   bool
	unknown bool // the system does not say how much is free
	bytes   int64
}

// reserve takes the bytes of a message, or returns ErrFull.
func (r *spaceBudget) reserve(t *txn, size int, minFree int64) error {
	if !r.known {
		r.known = true
		left, _, ok := t.publishable(minFree)
		r.bytes, r.unknown = left, !ok
	}
	if r.bytes -= int64(size); r.bytes < 0 && !r.unknown {
		return fmt.Errorf("%w: the disk has less than min_free left", backend.ErrFull)
	}
	return nil
}

// publishable returns how many bytes may be published until only reserve bytes are left. reserve is minFree, or its default.
// ok is false if the system cannot say.
func (t *txn) publishable(minFree int64) (left, reserve int64, ok bool) {
	free, total, ok := diskSpace(t.DB().Path())
	if minFree == 0 {
		minFree = min(defaultReserve, total/20)
	}
	s := t.DB().Stats()
	return free + int64(s.FreePageN)*int64(t.DB().Info().PageSize) - minFree, minFree, ok
}

var _ backend.Checker = (*Backend)(nil)

// Check implements [backend.Checker]. It looks at the free space on the disk of the file.
func (b *Backend) Check(ctx context.Context) (found []backend.Finding, err error) {
	err = b.view(ctx, "check", func(t *txn) error {
		left, reserve, ok := t.publishable(b.options.MinFree)
		if !ok || left >= reserve {
			return nil
		}
		f := backend.Finding{
			Code: "bolt-room", Severity: backend.SeverityWarning, Server: "file " + t.DB().Path(),
			Text:   fmt.Sprintf("the disk of the file has room for %d bytes until only min_free, %d bytes, is left: then Publish fails", left, reserve),
			Remedy: "make room on the disk, or let the groups settle their events",
		}
		if left <= 0 {
			f.Severity = backend.SeverityError
			f.Text = fmt.Sprintf("the disk of the file has less than min_free, %d bytes, left: Publish fails", reserve)
		}
		found = append(found, f)
		return nil
	})
	return found, err
}
