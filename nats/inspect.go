package nats

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A progress is how far the consumer of a group had come at a moment.
type progress struct {
	created   time.Time
	stream    uint64 // sequence of the last message that was delivered or skipped
	delivered uint64 // number of deliveries
	pending   uint64 // messages that were not delivered yet
}

func newProgress(c *jetstream.ConsumerInfo) progress {
	return progress{c.Created, c.Delivered.Stream, c.Delivered.Consumer, c.NumPending}
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
// the members if messages are missing. It tells them whether the group is paused, and which messages operators
// have settled.
func (u *upkeep) inspect(p *place, group string, c *jetstream.ConsumerInfo, members []*source) {
	key, now := [2]string{p.topic, group}, newProgress(c)
	u.mu.Lock()
	before, known := u.progress[key]
	u.progress[key] = now
	removed := u.removed[p.topic].ahead(before.stream)
	u.mu.Unlock()
	text := ""
	if lost := now.missing(before, p.shared(), removed); known && lost > 0 {
		text = fmt.Sprintf("%d messages or more are missing: they were removed from the stream %s before the group got them, as by a purge or a maximum age", lost, p.stream)
	}
	for _, s := range members {
		s.halt.learn(pauseOf(c))
		s.taken.learn(c)
		if text != "" {
			notify(s.config, text)
		}
	}
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
