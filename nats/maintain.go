package nats

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Maintainer = (*Backend)(nil)

const (
	purgeOften = 50 * time.Millisecond // shortest time to the next Maintain
	purgeBusy  = time.Second           // longest time to the next Maintain after a large purge, or with unknown growth
	purgeIdle  = 5 * time.Second       // longest time to the next Maintain in all other cases
	busy       = 1000                  // a purge of 1000 messages or more is large
	crowded    = 0.5                   // a stream is crowded if more than this share of its limit is used
)

// A fullness describes how full a stream was at a moment.
type fullness struct {
	at    time.Time
	last  uint64  // the last sequence number
	msgs  uint64  // messages in the stream
	share float64 // used share of the limit of the stream, 0 to 1
}

func newFullness(info jetstream.StreamInfo, at time.Time) fullness {
	f, c, s := fullness{at: at, last: info.State.LastSeq, msgs: info.State.Msgs}, info.Config, info.State
	if c.MaxBytes > 0 {
		f.share = float64(s.Bytes) / float64(c.MaxBytes)
	}
	if c.MaxMsgs > 0 {
		f.share = max(f.share, float64(s.Msgs)/float64(c.MaxMsgs))
	}
	return f
}

// next returns the time to the next Maintain: half the time until the stream is full, if it
// grows as fast as since before, which is the fullness at the last Maintain.
func (f fullness) next(before fullness) time.Duration {
	grown := (float64(f.last) - float64(before.last)) * f.share / float64(max(f.msgs, 1))
	switch {
	case before.at.IsZero(), f.share > crowded && f.last == before.last: // if crowded, it may be full
		return purgeBusy
	case grown <= 0:
		return purgeIdle
	}
	left := float64(f.at.Sub(before.at)) * (1 - f.share) / grown / 2
	return time.Duration(min(max(left, float64(purgeOften)), float64(purgeIdle)))
}

// Maintain implements [backend.Maintainer]. It purges the messages of the topic that every
// group has settled. While a group has messages that are in flight or delayed, it purges
// only a stream that is more than half full, by bytes or by messages. If the AckWait of the
// group is shorter than the lease of a member, Maintain raises it. It removes no members,
// because the server keeps no data about members.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	return run(ctx, b, "maintain", topic+"/"+group, harmless, func(ctx context.Context) (time.Duration, error) {
		purged, now, err := b.purge(ctx, b.place(topic))
		if err != nil {
			return purgeIdle, err
		}
		b.mu.Lock()
		before := b.fills[topic+"/"+group]
		b.fills[topic+"/"+group] = now
		b.mu.Unlock()
		if purged >= busy {
			return min(now.next(before), purgeBusy), nil
		}
		return now.next(before), nil
	})
}

// purge removes all messages before the first one that some group has not settled. It
// returns the number of removed messages, and the fullness of the stream before. After a
// purge, the server forgets which held or delayed messages are due, and redelivers them
// only after their lease. So purge removes none while a group has such messages, unless the
// stream is crowded.
func (b *Backend) purge(ctx context.Context, p *place) (n uint64, now fullness, err error) {
	// The list has also the consumers that the function hold made.
	consumers, err := list(ctx, b.api, "CONSUMER.LIST."+p.stream, func(c *jetstream.ConsumerInfo) string { return c.Name })
	floor, held := uint64(math.MaxUint64), 0
	for _, c := range consumers {
		if !strings.HasPrefix(c.Name, p.prefix) {
			continue // of another topic
		}
		if err := b.raise(ctx, p, c); err != nil {
			return 0, now, err
		}
		floor = min(floor, c.AckFloor.Stream)
		held += c.NumAckPending
	}
	if err != nil || floor == math.MaxUint64 {
		return 0, now, err
	}
	var info jetstream.StreamInfo
	if err := b.ask(ctx, "STREAM.INFO."+p.stream, nil, &info); err != nil {
		return 0, now, err
	}
	now = newFullness(info, time.Now())
	if floor < info.State.FirstSeq || held > 0 && now.share <= crowded {
		return 0, now, nil
	}
	request := jetstream.StreamPurgeRequest{Sequence: floor + 1}
	if p.shared() {
		request.Subject = p.subject
	}
	var answer struct {
		Purged uint64 `json:"purged"`
	}
	err = b.ask(ctx, "STREAM.PURGE."+p.stream, request, &answer)
	return answer.Purged, now, err
}

// raise makes the lease of a group as long as its members in this process need. The lease
// may be too short, because another process that raised it at the same time wrote a shorter
// one.
func (b *Backend) raise(ctx context.Context, p *place, c *jetstream.ConsumerInfo) error {
	group, _ := p.group(c.Name)
	var longest time.Duration
	b.mu.Lock()
	for s := range b.sources {
		if s.config.Topic == p.topic && s.config.Group == group {
			longest = max(longest, s.config.Lease)
		}
	}
	b.mu.Unlock()
	if c.Config.AckWait >= longest {
		return nil
	}
	c.Config.AckWait = longest
	return b.putConsumer(ctx, p, c.Config, "update")
}
