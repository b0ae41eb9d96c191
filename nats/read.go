package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// Read implements [backend.Reader]. What cannot be read as a message has its raw
// bytes as Payload.
func (b *Backend) Read(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ms, err := b.read(ctx, topic, from, limit)
	return ms, b.failure("read", topic, classOf(ctx, err, false))
}

func (b *Backend) read(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
	if b.closed.Load() {
		return nil, backend.ErrClosed
	}
	seq := uint64(0)
	if from != "" {
		var err error
		if seq, err = parsePosition(from); err != nil {
			return nil, err
		}
	}
	stream, err := b.js.Stream(ctx, b.streamName(topic))
	if err != nil {
		return nil, err
	}
	seq = max(seq+1, stream.CachedInfo().State.FirstSeq)
	last := stream.CachedInfo().State.LastSeq
	var ms []backend.Message
	for len(ms) < limit && seq <= last {
		raw, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(b.subject(topic)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return ms, nil
		}
		if err != nil {
			return ms, err
		}
		m := backend.Message{Topic: topic, Position: position(raw.Sequence), Payload: raw.Data}
		if err := readHeader(&m, raw.Header); err != nil {
			m = backend.Message{Topic: topic, Position: m.Position, Payload: fmt.Appendf(nil, "%v", raw.Header)}
		}
		ms = append(ms, m)
		seq = raw.Sequence + 1
	}
	return ms, nil
}
