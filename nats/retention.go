package nats

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	keepSlack = 5 * time.Second // shortest time for which a settled message may outlive Keep
	keepShare = 16              // a settled message may outlive Keep by 1/16 of it

	probeMark = holdMark + "=" // begins the name of a consumer of older
	probeFor  = time.Second    // after this time, and a second at most, the server deletes such a consumer
)

// aged reports whether a topic may have messages that are so much older than Keep that a
// search for them is worth its requests. After aged has returned true, it returns false for a
// while.
func (u *upkeep) aged(p *place, info jetstream.StreamInfo, keep time.Duration) bool {
	if keep == 0 {
		return true
	}
	slack := max(keepSlack, keep/keepShare)
	if info.TimeStamp.Sub(info.State.FirstTime) < keep+slack {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.searched[p.topic]) < slack { // in a shared stream the first message may be one of another topic
		return false
	}
	u.searched[p.topic] = time.Now()
	return true
}

// older returns the lower one of floor and the sequence up to which all messages were stored
// before the time t. To find this sequence by one request, it creates a consumer that begins at t. The
// server deletes this consumer soon, because nobody uses it.
func (u *upkeep) older(ctx context.Context, p *place, t time.Time, floor uint64) (uint64, error) {
	var info jetstream.ConsumerInfo
	err := u.putConsumer(ctx, p, jetstream.ConsumerConfig{
		Durable: p.prefix + probeMark + rand.Text(), AckPolicy: jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &t,
		InactiveThreshold: probeFor, Replicas: 1, MemoryStorage: true,
	}, "create", &info)
	return min(floor, info.Delivered.Stream), err
}
