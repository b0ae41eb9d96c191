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
// settled. Members that are gone leave nothing behind.
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
	floor := consumers[0].AckFloor.Stream
	for _, c := range consumers {
		floor = min(floor, c.AckFloor.Stream)
	}
	if floor == 0 {
		return 0, nil
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

// A consumerList is a page of consumers.
type consumerList struct {
	Total     int                       `json:"total"`
	Consumers []*jetstream.ConsumerInfo `json:"consumers"`
	Missing   []string                  `json:"missing"` // in a cluster: whose server has not answered
}

// consumers returns those of a topic's groups. It fails if that is not certain
// to be all of them.
func (b *Backend) consumers(ctx context.Context, p *place) ([]*jetstream.ConsumerInfo, error) {
	var all []*jetstream.ConsumerInfo
	missing := 0
	err := pages(ctx, b, "CONSUMER.LIST."+p.stream, func(list consumerList) (total, n int) {
		for _, c := range list.Consumers {
			if _, ok := p.group(c.Name); ok {
				all = append(all, c)
			}
		}
		missing += len(list.Missing)
		return list.Total, len(list.Consumers) + len(list.Missing)
	})
	if err == nil && missing > 0 {
		err = fmt.Errorf("%w: %d groups are not known, because their servers do not answer", backend.ErrUnavailable, missing)
	}
	return all, err
}
