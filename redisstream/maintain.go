package redisstream

import (
	"cmp"
	"context"
	"time"
)

const (
	trimLimit    = 10_000                 // entries that one run trims, for which other clients wait
	trimMore     = 100 * time.Millisecond // time to the next run if more entries can be trimmed
	trimBusy     = time.Second            // time to the next run if busyTrim entries were trimmed, or repairs are left
	trimIdle     = 5 * time.Second        // time to the next run otherwise
	turnTTL      = 2 * trimIdle           // time after the last run until another process may take over
	unknownLease = 10 * time.Minute       // assumed lease of other programs' consumers
	busyTrim     = 1000

	defaultYoungFor = time.Minute // how long a stream is young after a group was created on it
	maxYoung        = 100_000     // a stream with more entries is not young, because it takes much memory
)

// Maintain implements [backend.Maintainer]. It trims messages that every group has settled and
// that are older than Keep, by the time in their IDs. It removes members that have ended and
// hold no message, and repairs delayed messages that would never become due. It trims nothing
// while the stream is young (see docs/redis.md) or a group of this process is missing: after a
// server has lost its data, its groups are created again one after another, and each must get
// all messages.
//
// For an ephemeral group, Maintain is also the heartbeat of its members. Every five seconds it
// deletes the ephemeral groups of all topics whose members have not been heard of.
//
// Of all processes, one trims a topic and one works on each group: the one that did it last, as
// long as it calls often enough. In the others, Maintain does nothing during that time.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	stream := b.streamKey(topic)
	delayed := delayedKey(stream, group)
	b.mu.Lock()
	from := b.repairFrom[delayed]
	b.mu.Unlock()
	args := []any{group, trimLimit, millis(unknownLease), from, maxYoung, b.id, millis(turnTTL), b.options.MaxMessages}
	c := maintainScript.call([]string{
		stream, delayed, trimmedKey(stream), youngKey(stream), turnKey(stream), turnKey(delayed), settingsKey(stream),
	}, append(args, b.members.groups(topic)...)...)
	heard, idle := b.ephemerals.heartbeat(topic, group)
	defer b.ephemerals.reap(ctx)
	b.send(ctx, append(heard, c)...)
	c.arrayOf(3)
	removed, more := c.integer(), c.integer() == 1
	after := string(c.bulk())
	err := c.end()
	for _, h := range heard {
		err = cmp.Or(err, h.err)
	}
	if err != nil {
		return trimIdle, b.failure("maintain", topic+"/"+group, err)
	}
	b.mu.Lock()
	if b.repairFrom[delayed] = after; after == "" {
		delete(b.repairFrom, delayed) // groups come and go
	}
	b.mu.Unlock()
	switch {
	case more:
		return trimMore, nil
	case removed >= busyTrim || after != "":
		return min(trimBusy, idle), nil
	}
	return idle, nil
}
