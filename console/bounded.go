package console

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	// callTime is the longest time of one call for a change of letters. A call that takes longer
	// counts as a broker that is away.
	callTime = 10 * time.Second

	// onceMargin is the part of the OnceWindow in which a redrive does not begin again. It then reads,
	// lists groups and publishes, and the last of these calls has to be in the window.
	onceMargin = 4 * callTime
)

// A bounded backend ends each call for a change of letters after callTime. A driver may have no bound of
// its own for a context with a deadline, and the context of a job has one of hours.
type bounded struct{ backend.Backend }

// A boundedAdmin is a bounded backend that lists groups.
type boundedAdmin struct {
	bounded
	backend.Admin
}

var (
	_ backend.Reader  = bounded{}
	_ backend.Remover = bounded{}
	_ backend.Admin   = boundedAdmin{}
)

// bound returns b with bounded calls. A backend that lists no groups still lists none.
func bound(b backend.Backend) backend.Backend {
	if admin, ok := backend.As[backend.Admin](b); ok {
		return boundedAdmin{bounded{b}, admin}
	}
	return bounded{b}
}

func (b bounded) Unwrap() backend.Backend { return b.Backend }

func (b bounded) Publish(ctx context.Context, ms []*backend.Message) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return b.Backend.Publish(ctx, ms)
}

func (b bounded) Read(ctx context.Context, topic string, from backend.Start, most int) ([]backend.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return backend.Read(ctx, b.Backend, topic, from, most)
}

func (b bounded) Remove(ctx context.Context, topic string, positions []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return backend.Remove(ctx, b.Backend, topic, positions)
}

func (b boundedAdmin) Groups(ctx context.Context, topic string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return b.Admin.Groups(ctx, topic)
}
