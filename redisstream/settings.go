package redisstream

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Declarer = (*Backend)(nil)

// The settings of a topic are stored as text in a key of the topic, for example "keep=3600000
// max_messages=1000". Keep is in milliseconds. Zero settings are left out, and a topic without
// settings has no key. The scripts read this text, too.
const (
	keepName        = "keep="
	maxMessagesName = "max_messages="
)

func settingsText(s backend.TopicSettings) string {
	var words []string
	if s.Keep > 0 {
		words = append(words, keepName+strconv.FormatInt(millis(s.Keep), 10))
	}
	if s.MaxMessages > 0 {
		words = append(words, maxMessagesName+strconv.FormatInt(s.MaxMessages, 10))
	}
	return strings.Join(words, " ")
}

// readSettings parses the text of settings. It ignores words that it does not know.
func readSettings(text []byte) (s backend.TopicSettings) {
	for word := range strings.FieldsSeq(string(text)) {
		if value, ok := strings.CutPrefix(word, keepName); ok {
			ms, _ := strconv.ParseInt(value, 10, 64)
			s.Keep = time.Duration(min(max(ms, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		}
		if value, ok := strings.CutPrefix(word, maxMessagesName); ok {
			n, _ := strconv.ParseInt(value, 10, 64)
			s.MaxMessages = max(n, 0)
		}
	}
	return s
}

// Declare implements [backend.Declarer]. It tests whether the client may add to the stream, with
// an XADD whose ID no stream accepts. Without settings it does not create the stream, which the
// first message or group will do; it then succeeds even when the server's memory is full. Keep
// is rounded up to milliseconds.
//
// Another Backend applies a first MaxMessages from its first Publish to the topic. If it has
// published to the topic before, it may exceed the limit for a second, and then with one more
// call of Publish.
func (b *Backend) Declare(ctx context.Context, topic string, d backend.Declaration) (s backend.TopicSettings, err error) {
	defer func() { err = b.failure("declare", topic, err) }()
	if err := b.Limits().Settings.Check(d.Settings); err != nil {
		return s, err
	}
	stream := b.streamKey(topic)
	settings := settingsKey(stream)
	may, now := &call{args: []any{"xadd", stream, "0-0", field, ""}}, &call{args: []any{"get", settings}}
	b.send(ctx, may, now)
	if err := may.err; err != nil && !errors.Is(err, backend.ErrFull) && !strings.Contains(err.Error(), "must be greater than 0-0") {
		return s, err
	}
	if d.Replace || d.Settings != s {
		now = b.run(ctx, declareScript, []string{stream, settings}, settingsText(d.Settings), d.Replace)
	}
	text := now.bulk()
	if now.err != nil {
		return s, now.err
	}
	s = readSettings(text)
	b.bounds.store(topic, s.MaxMessages > 0, time.Now())
	return s, nil
}

const (
	boundTTL        = time.Second // after this time, Publish asks again whether the topic has a limit
	maxCachedBounds = 10_000      // topics to remember; with one more, all are forgotten and asked for again
)

// A boundCache remembers which topics have a limit of their own (MaxMessages), because only
// their messages need publish.lua. A backend asks before its first Publish to a topic. Later it
// asks along with its messages, in the same round trip, at most once per boundTTL.
type boundCache struct {
	all    bool // Options.MaxMessages limits all topics
	mu     sync.Mutex
	topics map[string]topicBound
}

type topicBound struct {
	bounded bool
	asked   time.Time
}

// A lookup says whether and when to ask the server for the limit of a topic.
type lookup int

const (
	noLookup        lookup = iota
	lookupWithBatch        // ask along with the next messages
	lookupFirst            // ask before the next messages
)

// lookup returns which lookup a topic needs. The caller does it. After lookupWithBatch, no other
// caller gets one for boundTTL.
func (b *boundCache) lookup(topic string, now time.Time) lookup {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.topics[topic]
	switch {
	case !ok:
		return lookupFirst
	case now.Sub(known.asked) < boundTTL:
		return noLookup
	}
	b.topics[topic] = topicBound{known.bounded, now} // the map has a copy of the name
	return lookupWithBatch
}

// bounded reports whether a topic has a limit, as far as the backend knows.
func (b *boundCache) bounded(topic string) bool {
	if b.all {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.topics[topic].bounded
}

// store remembers whether a topic has a limit. A reply to a question asked earlier than the one
// remembered changes nothing.
func (b *boundCache) store(topic string, set bool, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.topics[topic]
	if known.asked.After(at) {
		return
	}
	if b.topics == nil || !ok && len(b.topics) >= maxCachedBounds {
		b.topics = map[string]topicBound{}
	}
	b.topics[strings.Clone(topic)] = topicBound{set, at} // it may be part of a large string
}
