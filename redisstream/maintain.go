package redisstream

import (
	"context"
	"time"
)

const (
	maxTrim      = 10_000                // entries of one run, because other clients wait while it runs
	trimAgain    = 20 * time.Millisecond // when there were more
	trimBusy     = time.Second           // when there were many
	trimIdle     = 5 * time.Second       // when there were few
	unknownLease = 10 * time.Minute      // of a consumer that was not made by this package
	busy         = 1000

	youth    = time.Minute // how long a stream that appeared with a group is young, unless it grows
	maxYoung = 100_000     // entries: a longer stream is not young, because it takes memory
)

// Maintain implements [backend.Maintainer]. It trims the messages that every group has
// settled, removes members that are gone and hold nothing, and mends delayed messages that
// would never be due. It trims nothing while the stream is young or lacks a group that
// this process is attached to. The reason is that a lost stream has lost its groups too,
// and they return one after another.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	next, err := verb(b, "maintain", topic+"/"+group, func() (time.Duration, error) { return b.maintain(ctx, topic, group) })
	return max(next, trimAgain), err // 0 once it is closed
}

func (b *Backend) maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	stream := b.streamKey(topic)
	delayed := delayedKey(stream, group)
	most := maxYoung
	if bound := b.options.MaxMessages; bound > 0 {
		most = min(most, bound/2)
	}
	b.mu.Lock()
	args := []any{group, maxTrim, millis(unknownLease), b.mending[delayed], most}
	for s := range b.sources {
		if s.config.Topic == topic {
			args = append(args, s.config.Group)
		}
	}
	b.mu.Unlock()
	p, err := b.run(ctx, maintainScript, []string{stream, delayed, trimmedKey(stream), youngKey(stream)}, args...)
	if err != nil {
		return trimIdle, err
	}
	p.arrayOf(3)
	removed, more := p.integer(), p.integer() == 1
	after := string(p.bulk())
	if err := refused(p.end()); err != nil {
		return trimIdle, err
	}
	b.mu.Lock()
	if after == "" {
		delete(b.mending, delayed)
	} else {
		b.mending[delayed] = after
	}
	b.mu.Unlock()
	switch {
	case more:
		return trimAgain, nil
	case removed >= busy || after != "":
		return trimBusy, nil
	}
	return trimIdle, nil
}
