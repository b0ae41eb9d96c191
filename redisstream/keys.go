package redisstream

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// The keys of one topic, as docs/redis.md lists them. They share a hash tag, so that a
// script can use them together in Cluster. A topic name has no braces.

// groupKeys returns the stream and all keys of a group except the marks of instances.
func groupKeys(stream, group string) []string {
	delayed := delayedKey(stream, group)
	return []string{stream, delayed, sweepKey(delayed), turnKey(delayed), pauseKey(delayed), membersKey(delayed), instancesKey(delayed)}
}

// A namespace begins the keys of a backend.
type namespace string

// indexKey returns the key of the index of ephemeral groups. It has a slot of its own.
func (n namespace) indexKey() string { return string(n) + ":ephemeral" }

func (n namespace) streamKey(topic string) string { return string(n) + ":{" + topic + "}" }

func delayedKey(stream, group string) string { return stream + ":delayed:" + group }
func sweepKey(delayed string) string         { return delayed + ":sweep" }
func turnKey(key string) string              { return key + ":turn" }
func pauseKey(delayed string) string         { return delayed + ":pause" }
func membersKey(delayed string) string       { return delayed + ":members" }
func instancesKey(delayed string) string     { return delayed + ":instances" }
func trimmedKey(stream string) string        { return stream + ":trimmed" }
func youngKey(stream string) string          { return stream + ":young" }
func settingsKey(stream string) string       { return stream + ":settings" }

// neverKey returns a key that never exists. publish.lua uses it to test a permission.
func neverKey(stream string) string { return stream + ":once:-" }

// onceKey returns the key whose existence means that a message with Once and this mark was
// stored.
func onceKey(stream, mark string) string {
	sum := sha256.Sum256([]byte(mark))
	return stream + ":once:" + hex.EncodeToString(sum[:16])
}

// topicOf returns the topic of the stream with this key. ok is false for any other key.
func (n namespace) topicOf(key string) (topic string, ok bool) {
	rest, ok := strings.CutPrefix(key, string(n)+":{")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "}")
}

// instanceKey returns the key whose value is the incarnation of the last incarnation of an instance
// that has attached to a group.
func instanceKey(delayed, instance string) string { return delayed + ":instance:" + instance }

// isMark reports whether a key of a topic is a mark of Once or of an instance.
func isMark(stream, key string) bool {
	return strings.HasPrefix(key, stream+":once:") || strings.HasPrefix(key, stream+":delayed:") && strings.Contains(key, ":instance:")
}

// memberName returns a new name for the consumer of a member. The name ends with the lease,
// because another member may take over its messages only after that time
// (lua/with/lease.lua). It begins with the instance and the incarnation, if there are any
// (lua/with/release.lua). The consumer "parked" is no member: it owns the delayed messages.
// Maintain does not trim them, because they are pending.
func memberName(c backend.Config) string {
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s-%d-%s-%d", strings.ReplaceAll(host, "~", "_"), os.Getpid(), strings.ToLower(rand.Text()[:8]), millis(c.Lease))
	if c.Instance != "" {
		name = c.Instance + "~" + c.Incarnation + "~" + name
	}
	return name
}

// millis returns d in milliseconds, rounded up, so that no message is due too early.
func millis(d time.Duration) int64 { return ceil(d, time.Millisecond) }

// ceil returns d in the given unit, rounded up. Delays use microseconds, because a delay in
// milliseconds could end up to a millisecond later than the bus expects.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// A position is the id of a stream entry with leading zeros, such as
// 01795243593723-00000000000000000000. If the first number has more than 14 digits, which
// another program chose, a letter is before it, from a for 15 digits to f for 20. So
// positions compare as strings. Redis accepts a position without its letter as an id.
const (
	milliDigits  = 14
	serialDigits = 20
	positionLen  = milliDigits + 1 + serialDigits // of a position without a letter
	noPosition   = "0-0"                          // lower than the position of any message
)

// position returns the position of an id in the form that Redis writes.
func position(mem *slab.Slab, id []byte) string {
	const zeros = "00000000000000000000"
	var room [1 + 2*serialDigits + 1]byte
	millis, serial, _ := bytes.Cut(id, []byte("-"))
	to := room[:0]
	if more := len(millis) - milliDigits; more > 0 {
		to = append(to, letter(more))
	} else {
		to = append(to, zeros[:-more]...)
	}
	to = append(append(to, millis...), '-')
	to = append(to, zeros[:max(serialDigits-len(serial), 0)]...)
	return mem.Text(append(to, serial...))
}

// letter returns the letter for a number of digits beyond 14.
func letter(more int) byte { return 'a' - 1 + byte(more) }

// entryID returns a position as Redis accepts it. It returns a pointer, because commands take
// a *string as an argument without an allocation.
func entryID(position *string) *string {
	if len(*position) <= positionLen {
		return position
	}
	id := strings.TrimLeft(*position, "abcdef")
	return &id
}

// givenID returns the id of an entry whose position the caller gives: a position of this
// backend, or an id as Redis writes it.
func givenID(p string) (any, error) {
	millis, serial, _ := strings.Cut(p, "-")
	_, err := strconv.ParseUint(millis, 10, 64)
	_, bad := strconv.ParseUint(serial, 10, 64)
	if err == nil && bad == nil {
		return p, nil
	}
	if err := checkPosition(p); err != nil {
		return nil, err
	}
	return *entryID(&p), nil
}

// checkPosition returns ErrRefused if p is not a position of this backend. It accepts a long
// id without a letter too, because earlier versions made such positions.
func checkPosition(p string) error {
	millis, serial, _ := strings.Cut(p, "-")
	digits := strings.TrimLeft(millis, "abcdef")
	more := len(digits) - milliDigits
	ok := len(serial) == serialDigits && more >= 0 && (millis == digits || more > 0 && millis == string(letter(more))+digits)
	for _, number := range []string{digits, serial} { // each number of an id is at most 2⁶⁴−1
		_, err := strconv.ParseUint(number, 10, 64)
		ok = ok && err == nil
	}
	if !ok {
		return fmt.Errorf("%w: %.50q is not a position in a stream", backend.ErrRefused, p)
	}
	return nil
}
