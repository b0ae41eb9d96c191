package nats

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Maintainer = (*Backend)(nil)

const (
	heartbeatsPerThreshold = 4                      // Maintain is due four times in the time after which the server deletes an ephemeral group
	minHeartbeat           = 100 * time.Millisecond // shortest time to the next Maintain of an ephemeral group
	minInterval            = 50 * time.Millisecond  // shortest time to the next Maintain
	busyInterval           = time.Second            // longest time to the next Maintain after a large purge, or with unknown growth
	idleInterval           = 5 * time.Second        // longest time to the next Maintain in all other cases
	largePurge             = 1000                   // a purge of 1000 messages or more is large
	crowded                = 0.5                    // a stream is crowded if more than this share of its limit is used
	maxSettledBytes        = 64 << 20               // most settled bytes that a stream without a limit keeps while messages are held
)

// An upkeep is the knowledge of a backend's Maintain about topics and groups.
type maintainer struct {
	*api
	backend *Backend

	mu           sync.Mutex
	lastPurges   map[[2]string]purgeRecord // by topic and group
	progress     map[[2]string]progress    // by topic and group
	removed      map[string]removal        // by topic
	blockers     map[string]string         // by topic: the consumer that had settled least, and prevented a purge
	keepSearched map[string]time.Time      // by topic with Keep: the time of the last search for its end
	account      jetstream.AccountInfo     // as it was at the time asked
	accountAt    time.Time
}

func newMaintainer(b *Backend) *maintainer {
	return &maintainer{
		api: b.api, backend: b, lastPurges: map[[2]string]purgeRecord{}, progress: map[[2]string]progress{},
		removed: map[string]removal{}, blockers: map[string]string{}, keepSearched: map[string]time.Time{},
	}
}

// forgetGroup removes the knowledge about a group.
func (m *maintainer) forgetGroup(topic, group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lastPurges, [2]string{topic, group})
	delete(m.progress, [2]string{topic, group})
}

// Maintain implements [backend.Maintainer]. It purges the messages of the topic that every
// group has settled. While a group has messages that are in flight or delayed, it purges
// only a stream that is more than half full, by bytes or by messages. A stream without a
// limit of bytes is purged if 64 MiB are settled, or if its account is half full.
//
// Maintain looks at its own group first, by one request, and at all groups only if its own
// group allows a purge. Of all processes that maintain a topic, one purges, see upkeep.purge.
//
// If the AckWait of the group is shorter than the lease of a member, Maintain raises it. It
// gives notice of messages that were removed before the group got them. For an ephemeral
// group with members in this process, it sends a sign of life. It removes no members and no
// groups, because the server deletes an ephemeral group without a sign of life.
func (b *Backend) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	return run(ctx, b, "maintain", topic+"/"+group, harmless, func(ctx context.Context) (time.Duration, error) {
		loc := b.locate(topic)
		var own jetstream.ConsumerInfo
		members := b.members.of(topic, group)
		counts := make([]snapshot, len(members))
		for i, s := range members {
			counts[i] = s.tracker.snapshot()
		}
		err := b.ask(ctx, consumerInfo(loc, group), nil, &own)
		switch {
		case err == nil:
			for i, s := range members {
				s.tracker.compare(counts[i], &own, 1)
			}
			b.maintainer.checkMissing(loc, group, &own, members)
			err = b.maintainer.restoreConsumer(ctx, loc, own.Config, members)
		case isCode(err, jetstream.JSErrCodeConsumerNotFound):
			err = nil // other groups may have settled messages
		}
		if err != nil {
			return idleInterval, err
		}
		next, err := b.maintainer.purge(ctx, loc, group, &own)
		if t := own.Config.InactiveThreshold; t > 0 {
			next = min(next, max(t/heartbeatsPerThreshold, minHeartbeat))
		}
		return next, err
	})
}

// renew gives the consumer of a group the settings that its members in this process need. The
// consumer may lack them, because another process that changed it at the same time wrote
// settings without them. If the group is ephemeral, renew tells the server that it lives.
func (m *maintainer) restoreConsumer(ctx context.Context, loc *location, c jetstream.ConsumerConfig, members []*source) error {
	changed := false
	for _, s := range members {
		changed = s.needs.adapt(&c) || changed
	}
	if changed {
		if err := m.putConsumer(ctx, loc, c, "update", nil); err != nil {
			return err
		}
	}
	if len(members) == 0 || c.InactiveThreshold == 0 {
		return nil
	}
	return members[0].heartbeat(ctx)
}

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
func (m *maintainer) checkMissing(loc *location, group string, c *jetstream.ConsumerInfo, members []*source) {
	key, now := [2]string{loc.topic, group}, newProgress(c)
	m.mu.Lock()
	before, known := m.progress[key]
	m.progress[key] = now
	removed := m.removed[loc.topic].ahead(before.stream)
	m.mu.Unlock()
	text := ""
	if lost := now.missing(before, loc.shared(), removed); known && lost > 0 {
		text = fmt.Sprintf("%d messages or more are missing: they were removed from the stream %s before the group got them, as by a purge or a maximum age", lost, loc.stream)
	}
	for _, s := range members {
		s.pause.update(pauseOf(c))
		s.settledByOperators.update(c)
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
func (m *maintainer) noteRemoved(topic string, sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.removed[topic]
	m.removed[topic] = removal{r.count + 1, max(r.highest, sequence)}
}
