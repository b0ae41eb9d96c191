package nats

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// A location is where a topic is stored: in a stream of its own, or, with [Options].Stream, in
// a stream that all topics share. Names of streams and consumers cannot contain dots, so a
// plus replaces each dot; no name of a topic or group contains a plus. The mapping is one to
// one and reversible:
//
//	shop.orders              stream bus=shop+orders, subject bus.shop.orders
//	its group billing.eu     consumer billing+eu
//
// In a shared stream, each consumer filters by the subject of its topic:
//
//	group billing.eu of shop.orders     consumer shop+orders=billing+eu
type location struct {
	topic    string
	stream   string
	subject  string
	prefix   string // begins the names of the topic's consumers; empty unless the stream is shared
	capacity *capacity
}

// maxName is the most bytes that the server allows in the name of a stream or consumer.
const maxName = 255

func (b *Backend) locate(topic string) *location {
	topic = strings.Clone(topic) // a substring would keep all of a large text alive
	loc := &location{topic: topic, subject: b.options.Namespace + "." + topic, capacity: new(capacity)}
	if b.options.Stream == "" {
		loc.stream = b.options.Namespace + "=" + dotless(topic)
	} else {
		loc.stream, loc.prefix = b.options.Stream, dotless(topic)+"="
	}
	return loc
}

// shared reports whether the stream is shared with other topics.
func (loc *location) shared() bool { return loc.prefix != "" }

// consumer returns the name of a group's consumer.
func (loc *location) consumer(group string) string { return loc.prefix + dotless(group) }

// group returns the group of a consumer. It returns false for a consumer of another topic,
// and for one of holdPurges.
func (loc *location) group(consumer string) (string, bool) {
	rest, ok := strings.CutPrefix(consumer, loc.prefix)
	return dotted(rest), ok && !strings.HasPrefix(rest, holdPrefix)
}

// topicOf returns the topic of a stream that is not shared. ok is false for a stream of
// another namespace.
func (b *Backend) topicOf(stream string) (topic string, ok bool) {
	rest, ok := strings.CutPrefix(stream, b.options.Namespace+"=")
	return dotted(rest), ok
}

// topicOfConsumer returns the topic of a consumer of the shared stream. ok is false for a
// consumer of another program, and for the lock of withLock.
func topicOfConsumer(name string) (topic string, ok bool) {
	topic, _, ok = strings.Cut(name, "=")
	return dotted(topic), ok && topic != ""
}

func dotless(name string) string { return strings.ReplaceAll(name, ".", "+") }

func dotted(name string) string { return strings.ReplaceAll(name, "+", ".") }

// positionLen is the length of a position: a sequence number of the stream with leading zeros.
const positionLen = 20

func position(seq uint64) string { return string(appendPosition(make([]byte, 0, positionLen), seq)) }

// appendPosition appends the position of the sequence number seq to b.
func appendPosition(b []byte, seq uint64) []byte {
	var digits [positionLen]byte
	for i := positionLen - 1; i >= 0; i-- {
		digits[i] = byte('0' + seq%10)
		seq /= 10
	}
	return append(b, digits[:]...)
}

func parsePosition(p string) (uint64, error) {
	seq, err := strconv.ParseUint(p, 10, 64)
	if len(p) != positionLen || err != nil {
		return 0, fmt.Errorf("%w: %.50q is not a position in a stream", backend.ErrRefused, p)
	}
	return seq, nil
}
