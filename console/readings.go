package console

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/partition"
)

// The readings of a console are the part that reads events, in bounded steps. It keeps the results
// of earlier requests for a while.
type readings struct {
	backend   backend.Backend
	redact    groupstats.Redact
	timeout   time.Duration // of one call
	shared    *shared
	turns     chan struct{} // has a place for each request that reads events now
	journals  *keeper[journal]
	schedules *keeper[schedule]
	owners    *keeper[partition.Roll]
}

const (
	readAtOnce = 4               // requests that read events
	readTime   = 8 * time.Second // for one of them, and before it for its turn
)

func newReadings(b backend.Backend, o *Options) *readings {
	return &readings{
		backend: b, redact: o.Redact, timeout: o.Timeout, shared: newShared(), turns: make(chan struct{}, readAtOnce),
		journals: newKeeper[journal](), schedules: newKeeper[schedule](), owners: newKeeper[partition.Roll](),
	}
}

// reading calls f, which reads events, when it is its turn. All requests with the same key share one
// call of f, and for a moment its result.
func reading[T any](ctx context.Context, r *readings, key string, f func(context.Context) (T, error)) (T, error) {
	v, err := r.shared.get(ctx, key, func(ctx context.Context) (any, error) {
		if err := r.turn(ctx); err != nil {
			return nil, err
		}
		defer func() { <-r.turns }()
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		return f(ctx)
	})
	result, _ := v.(T)
	return result, err
}

// turn waits until fewer than readAtOnce requests read events.
func (r *readings) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	select {
	case r.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("too many requests read events now: %w", backend.ErrUnavailable)
	}
}
