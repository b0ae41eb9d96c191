package nats

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

const (
	purgeOften  = 50 * time.Millisecond // the shortest time to the next Maintain
	purgeBusy   = time.Second           // the longest time after a large purge, or if growth is unknown
	purgeIdle   = 5 * time.Second       // the longest time otherwise
	busy        = 1000                  // messages of a large purge
	crowded     = 0.5                   // a fuller stream is purged even while messages are held
	growsBefore = 2                     // Maintain is due again when half of the free room may be used up
)

// A fullness describes how full a stream was at a moment.
type fullness struct {
	at    time.Time
	last  uint64  // the last sequence number
	msgs  uint64  // in the stream
	share float64 // the used share of the stream's limit, 0 to 1
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

// next returns the time to the next Maintain. It assumes that the stream goes on growing as
// fast as it has since before, and leaves time before the stream is full.
func (f fullness) next(before fullness) time.Duration {
	switch {
	case before.at.IsZero(), f.share > crowded && f.last == before.last: // perhaps it is full
		return purgeBusy
	case f.last <= before.last || f.msgs == 0:
		return purgeIdle
	}
	grown := float64(f.last-before.last) * f.share / float64(f.msgs)
	if left := float64(f.at.Sub(before.at)) * (1 - f.share) / grown / growsBefore; left < float64(purgeIdle) {
		return max(time.Duration(left), purgeOften)
	}
	return purgeIdle
}

// Maintain implements [backend.Maintainer]. It purges messages that every group has
// settled, and raises leases. Members need no cleaning up: the server keeps nothing of
// them.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (next time.Duration, err error) {
	next = purgeIdle
	err = b.look(ctx, "maintain", topic+"/"+group, func(ctx context.Context) error {
		purged, now, err := b.purge(ctx, b.place(topic))
		if err != nil {
			return err
		}
		b.mu.Lock()
		before := b.fills[topic+"/"+group]
		b.fills[topic+"/"+group] = now
		b.mu.Unlock()
		if next = now.next(before); purged >= busy {
			next = min(next, purgeBusy)
		}
		return nil
	})
	return next, err
}

// purge removes all messages below the first one that some group has not settled. It
// returns their number and the stream's fullness before. While a group holds or delays
// messages, only a crowded stream is purged, because a purge makes the server forget which
// messages of a group are due. They are then redelivered only when their lease expires.
func (b *Backend) purge(ctx context.Context, p *place) (n uint64, now fullness, err error) {
	consumers, err := b.consumers(ctx, p)
	if err != nil || len(consumers) == 0 {
		return 0, now, err
	}
	floor, held := consumers[0].AckFloor.Stream, 0
	for _, c := range consumers {
		if err := b.raise(ctx, p, c); err != nil {
			return 0, now, err
		}
		floor = min(floor, c.AckFloor.Stream)
		held += c.NumAckPending
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

// A consumerList is a page of consumers.
type consumerList struct {
	Total     int                       `json:"total"`
	Consumers []*jetstream.ConsumerInfo `json:"consumers"`
	Missing   []string                  `json:"missing"` // consumers whose servers in the cluster did not answer
}

// consumers returns the consumers of a topic, including the ones of [broker.hold]. It fails
// unless the list is certainly complete. Each page begins with the last entry of the page before, so that a
// deletion in between skips none.
func (b *broker) consumers(ctx context.Context, p *place) ([]*jetstream.ConsumerInfo, error) {
	var all []*jetstream.ConsumerInfo
	seen, last := 0, ""
	for {
		var list consumerList
		if err := b.ask(ctx, "CONSUMER.LIST."+p.stream, map[string]int{"offset": max(seen-1, 0)}, &list); err != nil {
			return nil, err
		}
		if n := len(list.Missing); n > 0 {
			return nil, fmt.Errorf("%w: %d groups are not known, because their servers do not answer", backend.ErrUnavailable, n)
		}
		page := list.Consumers
		if seen > 0 {
			if len(page) == 0 || page[0].Name != last {
				return nil, fmt.Errorf("%w: groups were made or deleted while they were listed", backend.ErrUnavailable)
			}
			page = page[1:]
		}
		for _, c := range page {
			if strings.HasPrefix(c.Name, p.prefix) {
				all = append(all, c)
			}
			last = c.Name
		}
		switch seen += len(page); {
		case seen >= list.Total:
			return all, nil
		case len(page) == 0:
			return nil, fmt.Errorf("%w: the server does not list all groups", backend.ErrUnavailable)
		}
	}
}

// raise makes a group's lease as long as its members in this process need. A concurrent
// raise of another process may have overwritten the longer lease.
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
