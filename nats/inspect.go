package nats

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// A progress is how far the consumer of a group had come at a moment.
type progress struct {
	created   time.Time
	stream    uint64 // sequence of the last message that was delivered or skipped
	delivered uint64 // number of deliveries
	pending   uint64 // messages that were not delivered yet
	paused    bool
}

func newProgress(c *jetstream.ConsumerInfo) progress {
	return progress{c.Created, c.Delivered.Stream, c.Delivered.Consumer, c.NumPending, c.PauseRemaining > 0}
}

// missing returns how many messages were certainly removed from the stream since before,
// although the group had not got them. removed is the number of messages that this backend
// has removed itself. Each message that the consumer passes is delivered once or more, so a
// consumer that passes more messages than it delivers has skipped some. With a filter it
// also skips messages of other topics. Then only the messages that were pending count.
func (p progress) missing(before progress, filtered bool, removed uint64) uint64 {
	if !p.created.Equal(before.created) || p.delivered < before.delivered || p.stream < before.stream {
		return 0 // another consumer, or one whose server has crashed and forgotten deliveries
	}
	passed := p.stream - before.stream
	if filtered {
		passed = before.pending - min(before.pending, p.pending)
	}
	return passed - min(passed, p.delivered-before.delivered+removed)
}

// inspect compares a consumer with its progress at the last inspection. It gives notice to
// the members if the consumer is paused, and if messages are missing.
func (u *upkeep) inspect(p *place, group string, c *jetstream.ConsumerInfo, members []*source) {
	key, now := [2]string{p.topic, group}, newProgress(c)
	u.mu.Lock()
	before, known := u.progress[key]
	u.progress[key] = now
	removed := u.removed[p.topic].ahead(before.stream)
	u.mu.Unlock()
	var texts []string
	if lost := now.missing(before, p.shared(), removed); known && lost > 0 {
		texts = append(texts, fmt.Sprintf("%d messages or more are missing: they were removed from the stream %s before the group got them, as by a purge", lost, p.stream))
	}
	switch {
	case now.paused && !before.paused:
		texts = append(texts, paused(c))
	case before.paused && !now.paused:
		texts = append(texts, "the consumer "+c.Name+" is no longer paused")
	}
	for _, s := range members {
		s.paused.Store(now.paused)
		for _, text := range texts {
			notify(s.config, text)
		}
	}
}

func paused(c *jetstream.ConsumerInfo) string {
	return fmt.Sprintf("the consumer %s is paused, and delivers nothing, until %s", c.Name, time.Now().Add(c.PauseRemaining).UTC().Format(time.RFC3339))
}

// halted returns an error if the consumer is paused. It asks the server only if an inspection
// found the consumer paused.
func (s *source) halted(ctx context.Context) error {
	if !s.paused.Load() {
		return nil
	}
	info, err := s.info(ctx)
	if err == nil && info.PauseRemaining > 0 {
		return fmt.Errorf("%w: %s", backend.ErrUnavailable, paused(&info))
	}
	s.paused.Store(false) // the pull finds the reason of err
	return nil
}

// A removal counts the messages that this backend has removed from a topic.
type removal struct {
	count   uint64
	highest uint64 // highest sequence of these messages
}

// ahead returns the count, or 0 if a group that has passed the sequence passed has also
// passed all these messages.
func (r removal) ahead(passed uint64) uint64 {
	if r.highest <= passed {
		return 0
	}
	return r.count
}

// noteRemoved counts a removed message of a topic.
func (u *upkeep) noteRemoved(topic string, sequence uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.removed[topic]
	u.removed[topic] = removal{r.count + 1, max(r.highest, sequence)}
}
