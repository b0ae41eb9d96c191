package nats

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// Stats implements [backend.Statser]. JetStream does not tell what is held from
// what is delayed, nor how many members there are: they are [backend.Unknown],
// but for what is zero.
func (b *Backend) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	s, err := b.stats(ctx, topic, group)
	return s, b.failure("stats", topic+"/"+group, classOf(ctx, err, false))
}

func (b *Backend) stats(ctx context.Context, topic, group string) (s backend.Stats, err error) {
	if b.closed.Load() {
		return s, backend.ErrClosed
	}
	stream, err := b.js.Stream(ctx, b.streamName(topic))
	if err != nil {
		return s, err
	}
	c, err := stream.Consumer(ctx, consumerName(group))
	if err != nil {
		return s, err
	}
	info := c.CachedInfo()
	s.Depth = int64(stream.CachedInfo().State.Msgs)
	s.Lag = int64(info.NumPending)
	s.Members = backend.Unknown
	if info.NumAckPending > 0 {
		s.InFlight, s.Delayed = backend.Unknown, backend.Unknown
	}
	return b.oldest(ctx, stream, info, s)
}

// oldest looks for the oldest message that a group has not settled.
func (b *Backend) oldest(ctx context.Context, stream jetstream.Stream, info *jetstream.ConsumerInfo, s backend.Stats) (backend.Stats, error) {
	if info.NumPending == 0 && info.NumAckPending == 0 {
		return s, nil
	}
	m, err := stream.GetMsg(ctx, info.AckFloor.Stream+1, jetstream.WithGetMsgSubject(">"))
	if err == nil {
		s.Oldest = m.Time
		return s, nil
	}
	return s, err
}
