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

// The settings of a topic are a text in a key of the topic, such as "keep=3600000
// max_messages=1000". Keep is in milliseconds. A setting of zero is left out, and a topic
// without settings has no key. The scripts read this text too.
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

// readSettings reads a text of settings. It ignores words that it does not know.
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

// Declare implements [backend.Declarer]. It tests whether the client may add to the
// stream, by an XADD with an ID that no stream accepts. Without settings it leaves the
// creation of the stream to the first message or group. Then it succeeds too if the memory
// of the server is full. It rounds Keep up to milliseconds.
//
// Another Backend obeys a first MaxMessages from its first Publish to the topic on. If it
// has published to the topic before, it may exceed the bound for a second, and then with
// one more call of Publish.
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
	boundTTL        = time.Second // after this time a Publish to a topic asks again whether the topic has a bound
	maxCachedBounds = 10_000      // topics that a backend remembers; it then forgets all, and asks anew
)

// bounds remembers which topics have a bound of their own (MaxMessages), because only their
// messages need publish.lua. A backend asks before its first Publish to a topic. Later it
// asks with its messages, in the same round trip, at most once in boundAge.
type boundCache struct {
	all    bool // all topics have one, by Options.MaxMessages
	mu     sync.Mutex
	topics map[string]topicBound
}

type topicBound struct {
	bounded bool
	asked   time.Time
}

// A question says whether the server must be asked for the bound of a topic.
type lookup int

const (
	noLookup        lookup = iota
	lookupWithBatch        // ask with the next messages
	lookupFirst            // ask before the next messages
)

// question returns the question for a topic. The caller asks it. After again, other callers
// do not ask for boundAge.
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

// set reports whether a topic has a bound, as far as the backend knows.
func (b *boundCache) bounded(topic string) bool {
	if b.all {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.topics[topic].bounded
}

// learn remembers whether a topic has a bound. The server was asked at a moment, and a later
// answer stays.
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
