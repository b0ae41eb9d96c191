package redisstream

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	maxTrim      = 10_000                // entries of one run: others wait for as long as it takes
	trimAgain    = 20 * time.Millisecond // when there were more
	trimBusy     = time.Second           // when there were many
	trimIdle     = 5 * time.Second       // when there were few
	unknownLease = 10 * time.Minute      // of a consumer that was not made by this package
	busy         = 1000
)

// Maintain implements [backend.Maintainer]: it trims what every group has
// settled, removes members that are gone and hold nothing, and finds what was
// put aside and would not be found again.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	next, err := b.maintain(ctx, topic, group)
	return next, b.failure("maintain", topic+"/"+group, err)
}

func (b *Backend) maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	if b.closed.Load() {
		return trimIdle, backend.ErrClosed
	}
	stream := b.streamKey(topic)
	delayed := delayedKey(stream, group)
	b.mu.Lock()
	after := b.mending[delayed]
	b.mu.Unlock()
	p, err := b.run(ctx, &maintainScript, []string{stream, delayed, trimmedKey(stream)}, group, maxTrim, millis(unknownLease), after)
	if err != nil {
		return trimIdle, err
	}
	p.arrayOf(5)
	removed, more := p.integer(), p.integer() == 1
	p.integer()
	p.integer()
	after = string(p.bulk())
	if err := p.end(); err != nil {
		return trimIdle, errors.Join(backend.ErrRefused, err)
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
