package redisstream

import (
	"context"
	"time"
)

const (
	maxTrim      = 10_000                // entries of one run, because other clients wait while it runs
	trimAgain    = 20 * time.Millisecond // time to the next run if there are more entries to trim
	trimBusy     = time.Second           // the same, if this run trimmed at least busy entries
	trimIdle     = 5 * time.Second       // the same, if it trimmed fewer
	unknownLease = 10 * time.Minute      // assumed here and in Stats for consumers of other programs
	busy         = 1000

	youth    = time.Minute // how long a stream is young after a group was made on it
	maxYoung = 100_000     // entries: a longer stream is not young, because it takes memory
)

// Maintain implements [backend.Maintainer]. It trims the messages that every group has
// settled, removes members that are gone and hold nothing, and repairs delayed messages that
// would never be due. It trims nothing while the stream is young (docs/redis.md) or lacks a
// group of this process. If the server lost its data, the groups return one after another.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	next, err := verb(b, "maintain", topic+"/"+group, func() (time.Duration, error) { return b.maintain(ctx, topic, group) })
	return max(next, trimAgain), err // next is 0 after Close
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
