package redisstream

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// docs/redis.md lists the keys of a topic. They share a hash tag, so that one script can use
// them together in Cluster. A topic name has no braces.

// groupKeys returns the stream and all keys of a group, except the marks of instances.
func groupKeys(stream, group string) []string {
	delayed := delayedKey(stream, group)
	return []string{stream, delayed, sweepKey(delayed), turnKey(delayed), pauseKey(delayed), membersKey(delayed), instancesKey(delayed)}
}

// A namespace is the prefix of a backend's keys.
type namespace string

// indexKey returns the key of the index of ephemeral groups, which has a slot of its own.
func (n namespace) indexKey() string { return string(n) + ":ephemeral" }

func (n namespace) streamKey(topic string) string { return string(n) + ":{" + topic + "}" }

func delayedKey(stream, group string) string { return stream + ":delayed:" + group }

func sweepKey(delayed string) string { return delayed + ":sweep" }

func turnKey(key string) string { return key + ":turn" }

func pauseKey(delayed string) string { return delayed + ":pause" }

func membersKey(delayed string) string { return delayed + ":members" }

func instancesKey(delayed string) string { return delayed + ":instances" }

func trimmedKey(stream string) string { return stream + ":trimmed" }

func youngKey(stream string) string { return stream + ":young" }

func settingsKey(stream string) string { return stream + ":settings" }

// neverKey returns a key that never exists, with which publish.lua tests a permission.
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

// instanceKey returns the key that holds the last incarnation of an instance that attached to a
// group.
func instanceKey(delayed, instance string) string { return delayed + ":instance:" + instance }

// isMark reports whether a key of a topic is a mark of Once or of an instance.
func isMark(stream, key string) bool {
	return strings.HasPrefix(key, stream+":once:") || strings.HasPrefix(key, stream+":delayed:") && strings.Contains(key, ":instance:")
}

// memberName returns a new consumer name for a member. The name ends with the lease, because
// other members may take over its messages only after that time (lua/include/lease.lua). It
// begins with the instance and the incarnation, if there are any (lua/include/instance.lua).
//
// The consumer "parked" is not a member. It owns the delayed messages, so they are pending and
// Maintain does not trim them.
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

// ceil returns d in the given unit, rounded up. Delays are in microseconds, because in
// milliseconds they could end up to a millisecond later than the bus expects.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}
