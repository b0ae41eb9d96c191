package presence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// The limits of one call to Processes.
const (
	mostMessages = 10_000
	mostBytes    = 16 << 20
	pageSize     = 100
)

var errMany = fmt.Errorf("presence: %s has more than %d messages or %d MiB", Topic, mostMessages, mostBytes>>20)

// Processes returns the processes that have a heartbeat on b, sorted by name; none if no process
// was ever announced. It reads at most 10,000 messages and 16 MiB; if there are more, it returns
// the processes in the oldest ones and an error. If the backend cannot read topics, the error
// matches [errors.ErrUnsupported].
func Processes(ctx context.Context, b backend.Backend) ([]Process, error) {
	last := map[string]Process{} // the newest heartbeat of each ID
	direct := func(ctx context.Context, f func(context.Context) error) error { return f(ctx) }
	err := read(ctx, b, direct, func(m *backend.Message) {
		if p, ok := decode(m); ok {
			last[p.ID] = p
		}
	})
	if err != nil && !errors.Is(err, errMany) || len(last) == 0 {
		return nil, err
	}
	now, clockErr := backend.Now(ctx, b, Topic)
	if clockErr != nil {
		now = time.Now()
	}
	all := make([]Process, 0, len(last))
	for _, p := range last {
		s := p.stamp()
		p.Silent = s.age(now) > s.patience()
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int { return a.order(&b) })
	return all, err
}

// read calls each for the messages of the topic, oldest first. If there are too many, it returns
// errMany.
func read(ctx context.Context, b backend.Backend, call func(context.Context, func(context.Context) error) error, each func(*backend.Message)) error {
	n, size := 0, 0
	for from := backend.StartEarliest; ; {
		var ms []backend.Message
		err := call(ctx, func(ctx context.Context) (err error) {
			ms, err = backend.Read(ctx, b, Topic, from, pageSize)
			return err
		})
		switch {
		case errors.Is(err, backend.ErrGone), err == nil && len(ms) == 0:
			return nil
		case err != nil:
			return err
		case n >= mostMessages || size >= mostBytes:
			return errMany
		}
		n += len(ms)
		for i := range ms {
			size += ms[i].Size()
			each(&ms[i])
		}
		from = backend.StartAfter(ms[len(ms)-1].Position)
	}
}
