package nats

import (
	"context"
	"fmt"
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
// settled, and looks after leases. Members that are gone leave nothing behind.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (next time.Duration, err error) {
	next = purgeIdle
	err = b.look(ctx, "maintain", topic+"/"+group, func(ctx context.Context) error {
		purged, err := b.purge(ctx, b.place(topic))
		if purged >= busy {
			next = purgeBusy
		}
		return err
	})
	return next, err
}

// purge removes what every group has settled, with all before it, and returns
// how much that was.
func (b *Backend) purge(ctx context.Context, p *place) (n uint64, err error) {
	consumers, err := b.consumers(ctx, p)
	if err != nil || len(consumers) == 0 {
		return 0, err
	}
	floor, held := consumers[0].AckFloor.Stream, 0
	for _, c := range consumers {
		if err := b.raise(ctx, p, c); err != nil {
			return 0, err
		}
		floor = min(floor, c.AckFloor.Stream)
		held += c.NumAckPending
	}
	if floor == 0 {
		return 0, nil
	}
	if held > 0 {
		if crowded, err := b.crowded(ctx, p); err != nil || !crowded {
			return 0, err
		}
	}
	request := jetstream.StreamPurgeRequest{Sequence: floor + 1}
	if p.shared() {
		request.Subject = p.subject
	}
	var answer struct {
		Purged uint64 `json:"purged"`
	}
	err = b.ask(ctx, "STREAM.PURGE."+p.stream, request, &answer)
	return answer.Purged, err
}

// crowded reports whether a stream is more than half full. Otherwise nothing is
// purged while a group holds or delays something: with a purge the server forgets
// which of that is due, and it comes back only when its lease has passed.
func (b *Backend) crowded(ctx context.Context, p *place) (bool, error) {
	var info jetstream.StreamInfo
	if err := b.ask(ctx, "STREAM.INFO."+p.stream, nil, &info); err != nil {
		return false, err
	}
	c, s := info.Config, info.State
	return c.MaxBytes > 0 && s.Bytes > uint64(c.MaxBytes)/2 || c.MaxMsgs > 0 && s.Msgs > uint64(c.MaxMsgs)/2, nil
}

// A consumerList is a page of consumers.
type consumerList struct {
	Total     int                       `json:"total"`
	Consumers []*jetstream.ConsumerInfo `json:"consumers"`
	Missing   []string                  `json:"missing"` // in a cluster: whose server has not answered
}

// consumers returns those of a topic's groups. It fails if that is not certain
// to be all of them: each page begins with the last of the page before, so that
// none is passed over when one is deleted in between.
func (b *Backend) consumers(ctx context.Context, p *place) ([]*jetstream.ConsumerInfo, error) {
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
			if _, ok := p.group(c.Name); ok {
				all = append(all, c)
			}
			last = c.Name
		}
		if seen += len(page); len(page) == 0 || seen >= list.Total {
			return all, nil
		}
	}
}

// raise makes the lease of a group as long as its members here need it: of two
// that raise it at the same time the longer may have been overwritten.
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
