package nats

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// Stats implements [backend.Statser]. JetStream does not tell what is held from
// what is delayed, nor how many members there are: they are [backend.Unknown],
// but for what is zero.
func (b *Backend) Stats(ctx context.Context, topic, group string) (s backend.Stats, err error) {
	err = b.look(ctx, "stats", topic+"/"+group, func(ctx context.Context) (err error) {
		s, err = b.stats(ctx, b.place(topic), group)
		return err
	})
	return s, err
}

func (b *Backend) stats(ctx context.Context, p *place, group string) (s backend.Stats, err error) {
	state, err := b.state(ctx, p)
	if err != nil {
		return s, err
	}
	var info jetstream.ConsumerInfo
	if err := b.ask(ctx, consumerInfo(p, group), nil, &info); err != nil {
		return s, err
	}
	s.Depth = int64(state.Msgs)
	s.Lag = int64(max(info.NumPending, unread(p, state, info.Delivered.Stream)))
	s.Members = backend.Unknown
	if info.NumAckPending > 0 {
		s.InFlight, s.Delayed = backend.Unknown, backend.Unknown
	}
	if s.Lag == 0 && info.NumAckPending == 0 {
		return s, nil
	}
	m, err := b.readOne(ctx, p, info.AckFloor.Stream+1)
	if m != nil {
		s.Oldest = m.Time
	}
	return s, err
}

// unread is how many messages a stream of one topic has behind the last that was
// handed out. A consumer hears of what is stored a moment later; so what it says
// itself may be too little. Zero if it cannot be told.
func unread(p *place, state jetstream.StreamState, delivered uint64) uint64 {
	if p.shared() || state.Msgs == 0 || state.NumDeleted > 0 {
		return 0
	}
	delivered = max(delivered, state.FirstSeq-1)
	return max(state.LastSeq, delivered) - delivered
}

// state is that of a topic: of its stream, or of its part of one.
func (b *Backend) state(ctx context.Context, p *place) (jetstream.StreamState, error) {
	var info jetstream.StreamInfo
	var filter any
	if p.shared() {
		filter = map[string]string{"subjects_filter": p.subject}
	}
	err := b.ask(ctx, "STREAM.INFO."+p.stream, filter, &info)
	if p.shared() {
		info.State.Msgs = info.State.Subjects[p.subject]
	}
	return info.State, err
}
