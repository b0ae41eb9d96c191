package nats

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

const (
	purgeBusy = time.Second     // when there was much
	purgeIdle = 5 * time.Second // when there was little
	busy      = 1000
)

// Maintain implements [backend.Maintainer]: it removes what every group has
// settled. Members that are gone leave nothing behind.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	next, err := b.maintain(ctx, topic)
	return next, b.failure("maintain", topic+"/"+group, classOf(ctx, err, false))
}

func (b *Backend) maintain(ctx context.Context, topic string) (time.Duration, error) {
	if b.closed.Load() {
		return purgeIdle, backend.ErrClosed
	}
	s, err := b.js.Stream(ctx, b.streamName(topic))
	if err != nil {
		return purgeIdle, err
	}
	floor, groups, err := floorOf(ctx, s)
	if err != nil || groups == 0 {
		return purgeIdle, err
	}
	state := s.CachedInfo().State
	if state.Msgs == 0 || floor < state.FirstSeq {
		return purgeIdle, nil
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSequence(floor+1)); err != nil {
		return purgeIdle, err
	}
	if floor-state.FirstSeq >= busy {
		return purgeBusy, nil
	}
	return purgeIdle, nil
}

// floorOf returns the last sequence that every group has settled, with all
// before it.
func floorOf(ctx context.Context, s jetstream.Stream) (floor uint64, groups int, err error) {
	list := s.ListConsumers(ctx)
	for c := range list.Info() {
		if f := c.AckFloor.Stream; groups == 0 || f < floor {
			floor = f
		}
		groups++
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return 0, 0, err
	}
	return floor, groups, nil
}
