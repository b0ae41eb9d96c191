package nats

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	keepSlack = 5 * time.Second // how long a settled message may outlive Keep in any case
	keepShare = 16              // a settled message may also outlive Keep by 1/16 of it

	probePrefix  = holdPrefix + "=" // begins the names of consumers that floorBefore and withLock create
	probeTimeout = time.Second      // the server deletes such a consumer after this time and up to a second more
)

// keepExpired reports whether a topic may have messages so much older than Keep that searching
// for them is worth the requests. After it has returned true, it returns false for a while.
func (m *maintainer) keepExpired(loc *location, info jetstream.StreamInfo, keep time.Duration) bool {
	if keep == 0 {
		return true
	}
	slack := max(keepSlack, keep/keepShare)
	if info.TimeStamp.Sub(info.State.FirstTime) < keep+slack {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.keepSearched[loc.topic]) < slack { // in a shared stream the first message may be another topic's
		return false
	}
	m.keepSearched[loc.topic] = time.Now()
	return true
}

// floorBefore returns the lower one of floor and the sequence up to which all messages were
// stored before the time t. It finds that sequence in one request: it creates a consumer that
// begins at t, which the server soon deletes because nobody uses it.
func (m *maintainer) floorBefore(ctx context.Context, loc *location, t time.Time, floor uint64) (uint64, error) {
	var info jetstream.ConsumerInfo
	err := m.putConsumer(ctx, loc, jetstream.ConsumerConfig{
		Durable: loc.prefix + probePrefix + rand.Text(), AckPolicy: jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &t,
		InactiveThreshold: probeTimeout, Replicas: 1, MemoryStorage: true,
	}, "create", &info)
	return min(floor, info.Delivered.Stream), err
}

// A fullness is how full a stream was at a moment.
type fullness struct {
	at    time.Time
	last  uint64  // the last sequence
	msgs  uint64  // messages in the stream
	share float64 // used share of the stream's limit, 0 to 1; 0 if there is no limit
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

// next returns the time to the next Maintain: half the time until the stream is full, if it goes
// on growing as fast as since before, the fullness at the last Maintain.
func (f fullness) next(before fullness) time.Duration {
	grown := (float64(f.last) - float64(before.last)) * f.share / float64(max(f.msgs, 1))
	switch {
	case before.at.IsZero(), f.share > crowded && f.last == before.last: // if it is crowded, it may be full
		return busyInterval
	case grown <= 0:
		return idleInterval
	}
	left := float64(f.at.Sub(before.at)) * (1 - f.share) / grown / 2
	return time.Duration(min(max(left, float64(minInterval)), float64(idleInterval)))
}

// A purgeRecord is the state in which Maintain has left a topic, for one of its groups.
type purgeRecord struct {
	fullness
	first uint64 // first sequence of the stream, after the purge if there was one
}

// purge removes all messages before the first one that some group has not settled, and returns
// the time to the next Maintain. own is the consumer of the group; it is empty if there is none.
//
// After a purge, the server forgets which held or delayed messages are due, and redelivers them
// only when their lease expires. Therefore purge does nothing while a group has such messages, unless
// the stream is crowded.
//
// If another process or group has purged the stream since the last call for this group, purge
// leaves the work to it. That way a single process purges a topic for as long as it lives. In a
// shared stream every process purges, because the earlier purge may have been of another topic.
//
// Messages younger than Keep stay even if the stream is crowded. Once it is full, Publish makes
// room; see maintainer.makeRoom.
func (m *maintainer) purge(ctx context.Context, loc *location, group string, own *jetstream.ConsumerInfo) (time.Duration, error) {
	var info jetstream.StreamInfo
	if err := m.ask(ctx, "STREAM.INFO."+loc.stream, nil, &info); err != nil {
		return idleInterval, err
	}
	m.mu.Lock()
	before := m.lastPurges[[2]string{loc.topic, group}]
	m.mu.Unlock()
	settings, _, err := settingsOf(loc, info.Config)
	if err != nil {
		return idleInterval, err // as long as Keep is unknown, nothing may be purged
	}
	if known, ok := m.backend.known.Load(loc.topic); ok {
		known.(*location).capacity.setBounds(loc, info.Config)
	}
	now, purged := purgeRecord{newFullness(info, time.Now()), info.State.FirstSeq}, uint64(0)
	tight := now.share > crowded
	useful := func(floor uint64, held int) bool {
		return floor >= info.State.FirstSeq && (held == 0 || tight || m.tooMuchSettled(ctx, info, floor))
	}
	ownAllows := own.Name == "" || useful(own.AckFloor.Stream, own.NumAckPending)
	inTurn := tight || loc.shared() || before.at.IsZero() || before.first == now.first
	if info.State.Msgs > 0 && ownAllows && inTurn && m.keepExpired(loc, info, settings.Keep) {
		floor, held, err := m.floor(ctx, loc, info.State.FirstSeq)
		if err == nil && settings.Keep > 0 && useful(floor, held) {
			floor, err = m.floorBefore(ctx, loc, info.TimeStamp.Add(-settings.Keep), floor)
		}
		if err == nil && useful(floor, held) {
			now.first = floor + 1
			purged, err = m.purgeTo(ctx, loc, floor)
		}
		if err != nil {
			return idleInterval, err
		}
	}
	m.mu.Lock()
	m.lastPurges[[2]string{loc.topic, group}] = now
	m.mu.Unlock()
	if settings.Keep > 0 {
		return idleInterval, nil // more messages become old enough only as time passes
	}
	if purged >= largePurge {
		return min(now.next(before.fullness), busyInterval), nil
	}
	return now.next(before.fullness), nil
}

// purgeTo purges the messages of a topic up to the sequence floor.
func (m *maintainer) purgeTo(ctx context.Context, loc *location, floor uint64) (purged uint64, err error) {
	request := jetstream.StreamPurgeRequest{Sequence: floor + 1}
	if loc.shared() {
		request.Subject = loc.subject
	}
	var answer struct {
		Purged uint64 `json:"purged"`
	}
	err = m.ask(ctx, "STREAM.PURGE."+loc.stream, request, &answer)
	return answer.Purged, err
}

// floor returns the sequence up to which every group of a topic has settled all messages, or 0
// if there is no group, and the number of messages in flight or delayed in all groups.
//
// It asks about one group after another and stops at one that has not settled the message
// first. It begins with the group at which it stopped the last time. A group without a leader
// has an unknown progress, so floor then fails.
func (m *maintainer) floor(ctx context.Context, loc *location, first uint64) (floor uint64, held int, err error) {
	m.mu.Lock()
	last := m.blockers[loc.topic]
	m.mu.Unlock()
	if last != "" {
		floor, held, err := m.floorOf(ctx, loc, last)
		if err == nil && floor < first {
			return floor, held, nil
		}
	}
	consumers, err := m.names(ctx, "CONSUMER.NAMES."+loc.stream) // including the ones of holdPurges
	if err != nil {
		return 0, 0, err
	}
	floor = math.MaxUint64
	for _, c := range consumers {
		if !strings.HasPrefix(c, loc.prefix) || strings.HasPrefix(c, loc.prefix+probePrefix) {
			continue // of another topic, or not a group
		}
		f, h, err := m.floorOf(ctx, loc, c)
		switch {
		case isCode(err, jetstream.JSErrCodeConsumerNotFound):
			return 0, 0, nil // deleted or reset since names
		case err != nil:
			return 0, 0, fmt.Errorf("consumer %s: %w", c, err)
		default:
			floor, held = min(floor, f), held+h
		}
		if floor < first {
			m.mu.Lock()
			m.blockers[loc.topic] = c
			m.mu.Unlock()
			return floor, held, nil
		}
	}
	if floor == math.MaxUint64 {
		return 0, 0, nil
	}
	return floor, held, nil
}

func (m *maintainer) floorOf(ctx context.Context, loc *location, consumer string) (floor uint64, held int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var info jetstream.ConsumerInfo
	err = m.ask(ctx, "CONSUMER.INFO."+loc.stream+"."+consumer, nil, &info)
	return info.AckFloor.Stream, info.NumAckPending, err
}

// tooMuchSettled reports whether a stream without a limit of bytes has so many settled messages
// that they must go: they take up maxSettledBytes, or the account is crowded. Messages up to the
// sequence floor are settled.
func (m *maintainer) tooMuchSettled(ctx context.Context, stream jetstream.StreamInfo, floor uint64) bool {
	if stream.Config.MaxBytes > 0 {
		return false
	}
	s := stream.State
	if float64(s.Bytes)*float64(floor-s.FirstSeq+1)/float64(s.LastSeq-s.FirstSeq+1) > maxSettledBytes {
		return true
	}
	return usedOf(m.accountUsage(ctx), stream.Config) > crowded
}

// usedOf returns the used share of the account's storage for streams with the replicas and the
// storage of c, or 0 if that is unlimited.
func usedOf(account jetstream.AccountInfo, c jetstream.StreamConfig) float64 {
	tier, tiered := account.Tiers["R"+strconv.Itoa(c.Replicas)]
	if !tiered {
		tier = account.Tier
	}
	used, limit := tier.Store, tier.Limits.MaxStore
	if c.Storage == jetstream.MemoryStorage {
		used, limit = tier.Memory, tier.Limits.MaxMemory
	}
	if limit <= 0 {
		return 0
	}
	return float64(used) / float64(limit)
}

// accountUsage returns the use and the limits of the account, at most a second old. If the
// server does not report them, they are zero.
func (m *maintainer) accountUsage(ctx context.Context) jetstream.AccountInfo {
	m.mu.Lock()
	account, old := m.account, time.Since(m.accountAt) > time.Second
	m.mu.Unlock()
	if !old {
		return account
	}
	if err := m.ask(ctx, "INFO", nil, &account); err != nil {
		account = jetstream.AccountInfo{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account, m.accountAt = account, time.Now()
	return account
}
