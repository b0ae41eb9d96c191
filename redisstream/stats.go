package redisstream

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Stats implements [backend.Statser]. The lag is [backend.Unknown] where Redis
// does not know it for certain: after entries were deleted or trimmed by others,
// or for a group that began in the middle and has not been at the end since. A
// member that ended without leaving counts for a lease longer.
func (b *Backend) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	s, err := b.stats(ctx, topic, group)
	return s, b.failure("stats", topic+"/"+group, err)
}

func (b *Backend) stats(ctx context.Context, topic, group string) (s backend.Stats, err error) {
	if b.closed.Load() {
		return s, backend.ErrClosed
	}
	stream := b.streamKey(topic)
	p, err := b.run(ctx, &statsScript, []string{stream, trimmedKey(stream)}, group, millis(unknownLease))
	if err != nil {
		return s, err
	}
	p.arrayOf(6)
	s.Depth, s.Lag = int64(p.integer()), int64(p.integer())
	pending, waiting := int64(p.integer()), int64(p.integer())
	s.InFlight, s.Delayed = pending-waiting, waiting
	s.Members = int64(p.integer())
	if oldest := p.bulk(); len(oldest) > 0 {
		ms, _, _ := bytes.Cut(oldest, []byte("-"))
		s.Oldest = time.UnixMilli(int64(p.number(ms)))
	}
	if err := p.end(); err != nil {
		return backend.Stats{}, fmt.Errorf("%w: %w", backend.ErrRefused, err)
	}
	return s, nil
}
