package nats

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Maintainer = (*Backend)(nil)

const (
	purgeOften  = 50 * time.Millisecond // shortest time to the next Maintain
	purgeBusy   = time.Second           // longest time to the next Maintain after a large purge, or with unknown growth
	purgeIdle   = 5 * time.Second       // longest time to the next Maintain in all other cases
	busy        = 1000                  // a purge of 1000 messages or more is large
	crowded     = 0.5                   // a stream is crowded if more than this share of its limit is used
	growsBefore = 2                     // the next Maintain is due before 1/2 of the free room may be used
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

// next returns the time to the next Maintain. before is the fullness at the last Maintain.
// next assumes that the stream continues to grow as fast as between before and f, and
// leaves time before it is full.
func (f fullness) next(before fullness) time.Duration {
	switch {
	case before.at.IsZero(), f.share > crowded && f.last == before.last: // if crowded, it may be full
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
// settled. While messages of a group are held or delayed, it purges only a stream that is
// more than half full. It raises the lease of a group (AckWait) that is too short for a
// member. It removes no members, because the server keeps no data about members.
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

// purge removes all messages before the first one that some group has not settled. It
// returns the number of removed messages, and the fullness of the stream before. After a
// purge, the server forgets which held or delayed messages are due, and redelivers them
// only after their lease. So purge removes none while a group has such messages, unless the
// stream is crowded.
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

// consumers returns the consumers of a topic, also the ones that [hold] made. It
// returns an error if the list may be incomplete. Each page begins with the last entry of
// the page before, so that no entry is skipped if one is deleted meanwhile.
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
	_, err := b.putConsumer(ctx, p, c.Config, "update")
	return err
}
