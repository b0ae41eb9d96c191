package redisstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

const (
	maxPipeline = 1000    // most messages of one round trip without publish.lua
	maxScripted = 100     // most messages of one round trip with publish.lua; other clients wait for the script
	maxTrip     = 4 << 20 // most bytes of one round trip with several messages
)

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	var errs backend.BatchError
	err := b.with(ctx, func(w *wire) error {
		start, inspection := 0, &inspection{backend: b, wire: w}
		for broken := false; start < len(msgs) && !broken; {
			t := &w.trip
			lost := t.know(ctx, inspection, msgs[start:min(start+maxPipeline, len(msgs))])
			part := msgs[start : start+tripLen(msgs[start:], &b.bounds)]
			t.begin(ctx, inspection, part)
			broken = t.publish(ctx, b, w) || lost
			for i, m := range part {
				errs.Set(start+i, len(msgs), b.failure("publish", m.Topic, t.adds[i].err))
			}
			t.end()
			start += len(part)
		}
		for i := start; i < len(msgs); i++ {
			unsent := fmt.Errorf("%w: not sent: %w", backend.ErrUnavailable, cmp.Or(ctx.Err(), errBroke))
			errs.Set(i, len(msgs), b.failure("publish", msgs[i].Topic, unsent))
		}
		return nil
	})
	if err != nil {
		return b.failure("publish", "", err)
	}
	return backend.AsBatchError(errs)
}

var errBroke = errors.New("a call before it has failed")

// tripLen returns the number of messages at the front of msgs that go into one trip. No
// trip has two calls of publish.lua for one topic. A server that is loading its data may
// refuse the first call and run the second.
func tripLen(msgs []*backend.Message, bounds *bounds) int {
	size, most := 0, maxPipeline
	for i, m := range msgs {
		if m.Once || (i == 0 || m.Topic != msgs[i-1].Topic) && bounds.set(m.Topic) {
			most = maxScripted
		}
		if size += m.Size(); i > 0 && (size > maxTrip || i >= most) {
			return i
		}
	}
	return len(msgs)
}
