package redisstream

import (
	"cmp"
	"context"
	"time"
)

const (
	trimLimit    = 10_000                 // most entries that one run trims; other clients wait for the run
	trimMore     = 100 * time.Millisecond // time to the next run if there are more entries to trim
	trimBusy     = time.Second            // time to the next run if busy entries were trimmed, or more repairs are left
	trimIdle     = 5 * time.Second        // time to the next run in all other cases
	turnTTL      = 2 * trimIdle           // time after the last run until another process may do the work
	unknownLease = 10 * time.Minute       // assumed lease of consumers of other programs
	busyTrim     = 1000

	defaultYoungFor = time.Minute // time for which a stream is young after a group was created on it
	maxYoung        = 100_000     // a stream with more entries is not young, because it uses much memory
)

// Maintain implements [backend.Maintainer]. It trims the messages that every group has
// settled and that are older than Keep, by the time in their ids. It removes members that
// have ended and hold no message. It repairs delayed messages that would never be due. It
// trims nothing while the stream is young (see docs/redis.md) or lacks a group of this
// process. The reason is a server that lost its data: its groups are created again one after
// another, and each must get all messages.
//
// Maintain tells the server that the members of an ephemeral group live. Every five seconds
// it also deletes the ephemeral groups, of all topics, whose members are not heard of.
//
// One process trims a topic, and one works on each group: the process that did it last, while
// it calls often enough. Maintain of another process does nothing meanwhile.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	stream := b.streamKey(topic)
	delayed := delayedKey(stream, group)
	b.mu.Lock()
	mending := b.repairFrom[delayed]
	b.mu.Unlock()
	args := []any{group, trimLimit, millis(unknownLease), mending, maxYoung, b.id, millis(turnTTL), b.options.MaxMessages}
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
