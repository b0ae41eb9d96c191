package presence

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// The bounds of one reading.
const (
	mostNotes = 10_000
	mostBytes = 64 << 20
	pageSize  = 100
)

// Processes returns the processes that have a note on b, sorted by name. It reads at most 10,000
// notes and about 64 MiB. If no process was announced yet, there are none. If the backend cannot read topics, the
// error matches [errors.ErrUnsupported].
func Processes(ctx context.Context, b backend.Backend) ([]Process, error) {
	notes, err := read(ctx, b, func(ctx context.Context, f func(context.Context) error) error { return f(ctx) })
	if err != nil || len(notes) == 0 {
		return nil, err
	}
	now, err := backend.Now(ctx, b, Topic)
	if err != nil {
		now = time.Now()
	}
	last := map[string]int{} // the index of the newest note, by ID
	for i := range notes {
		last[notes[i].ID] = i
	}
	all := make([]Process, 0, len(last))
	for i := range notes {
		if p := notes[i]; last[p.ID] == i {
			p.Silent = p.age(now) > p.patience()
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return a.order(&b) })
	return all, nil
}

// read returns all notes, the oldest first.
func read(ctx context.Context, b backend.Backend, call func(context.Context, func(context.Context) error) error) (notes []Process, err error) {
	size := 0
	for from := backend.StartEarliest; len(notes) < mostNotes && size < mostBytes; {
		var ms []backend.Message
		err := call(ctx, func(ctx context.Context) (err error) {
			ms, err = backend.Read(ctx, b, Topic, from, pageSize)
			return err
		})
		if errors.Is(err, backend.ErrGone) || err == nil && len(ms) == 0 {
			return notes, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range ms {
			size += ms[i].Size()
			if p, ok := decode(&ms[i]); ok {
				notes = append(notes, p)
			}
		}
		from = backend.StartAfter(ms[len(ms)-1].Position)
	}
	return notes, nil
}
