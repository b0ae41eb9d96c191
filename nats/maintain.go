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
	minHeartbeat           = 100 * time.Millisecond // shortest interval of Maintain for an ephemeral group
	minInterval            = 50 * time.Millisecond  // shortest interval of Maintain
	busyInterval           = time.Second            // longest interval after a large purge, or while growth is unknown
	idleInterval           = 5 * time.Second        // longest interval otherwise
	largePurge             = 1000                   // a purge of at least this many messages is large
	crowded                = 0.5                    // a stream is crowded if more than this share of its limit is used
	maxSettledBytes        = 64 << 20               // most settled bytes that a stream without a limit keeps while messages are held
)

// A maintainer does the work of Maintain, and remembers what it has seen of topics and groups.
type maintainer struct {
	*api
	backend *Backend

	mu           sync.Mutex
	lastPurges   map[[2]string]purgeRecord // by topic and group
	progress     map[[2]string]progress    // by topic and group
	removed      map[string]removal        // by topic
	blockers     map[string]string         // by topic: the consumer that had settled least and prevented a purge
	keepSearched map[string]time.Time      // by topic with Keep: when the first message to keep was last searched
	account      jetstream.AccountInfo     // as it was at accountAt
	accountAt    time.Time
}

func newMaintainer(b *Backend) *maintainer {
	return &maintainer{
		api: b.api, backend: b, lastPurges: map[[2]string]purgeRecord{}, progress: map[[2]string]progress{},
		removed: map[string]removal{}, blockers: map[string]string{}, keepSearched: map[string]time.Time{},
	}
}

// forgetGroup forgets a group.
func (m *maintainer) forgetGroup(topic, group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lastPurges, [2]string{topic, group})
	delete(m.progress, [2]string{topic, group})
}

// Maintain implements [backend.Maintainer]. It purges the messages of the topic that every
// group has settled. While a group has messages in flight or delayed, it purges only a stream
// that is more than half full, by bytes or by messages. A stream without a limit of bytes is
// purged if 64 MiB are settled, or if its account is half full.
//
// Maintain first asks about its own group, in one request, and about all groups only if its own
// group allows a purge. Of all processes that maintain a topic, only one purges it; see
// maintainer.purge.
//
// Besides that, Maintain raises an AckWait that is shorter than the lease of a member, sends a
// notice if messages were removed before the group got them, and for an ephemeral group with
// members in this process tells the server that the group is alive. It removes no members and no
// groups: the server itself deletes an ephemeral group without activity.
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
			err = nil // other groups may still have settled messages
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

// restoreConsumer gives the consumer of a group the settings that its members in this process
// need. They may have been lost because another process changed the consumer at the same time.
// If the group is ephemeral, restoreConsumer also tells the server that it is alive.
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

// missing returns how many messages were certainly removed from the stream since before, although
// the group had not got them. removed is how many this backend has removed itself.
//
// A consumer delivers each message that it passes at least once, so if it has passed more
// messages than it has delivered, it has skipped some. A consumer with a filter also skips the
// messages of other topics; for it, only messages that were pending count.
func (p progress) missing(before progress, filtered bool, removed uint64) uint64 {
	if !p.created.Equal(before.created) || p.delivered < before.delivered || p.stream < before.stream {
		return 0 // another consumer, or the server has crashed and forgotten deliveries
	}
	passed := p.stream - before.stream
	if filtered {
		passed = before.pending - min(before.pending, p.pending)
	}
	return passed - min(passed, p.delivered-before.delivered+removed)
}

// checkMissing compares a consumer with its progress at the last Maintain, and sends members a
// notice if messages are missing. It also tells members whether the group is paused and which
// messages operators have settled.
func (m *maintainer) checkMissing(loc *location, group string, c *jetstream.ConsumerInfo, members []*source) {
	key, now := [2]string{loc.topic, group}, newProgress(c)
	m.mu.Lock()
	before, known := m.progress[key]
	m.progress[key] = now
	removed := m.removed[loc.topic].ahead(before.stream)
	m.mu.Unlock()
	text := ""
	if lost := now.missing(before, loc.shared(), removed); known && lost > 0 {
		text = fmt.Sprintf("at least %d messages are missing: they were removed from stream %s before the group got them, for example by a purge or a maximum age", lost, loc.stream)
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

// ahead returns the count, or 0 if a group that has passed the sequence passed has passed all of
// these messages.
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
