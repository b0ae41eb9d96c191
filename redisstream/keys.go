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

func (b *Backend) streamKey(topic string) string { return b.options.Namespace + ":{" + topic + "}" }

func delayedKey(stream, group string) string { return stream + ":delayed:" + group }
func sweptKey(delayed string) string         { return delayed + ":swept" }
func trimmedKey(stream string) string        { return stream + ":trimmed" }
func youngKey(stream string) string          { return stream + ":young" }

// neverKey returns a key that never exists. publish.lua uses it to test a permission.
func neverKey(stream string) string { return stream + ":once:-" }

// onceKey returns the key whose existence means that a message with Once and this ID was
// stored.
func onceKey(stream, id string) string {
	sum := sha256.Sum256([]byte(id))
	return stream + ":once:" + hex.EncodeToString(sum[:16])
}

// topicOf returns the topic of the stream with this key. ok is false for any other key.
func (b *Backend) topicOf(key string) (topic string, ok bool) {
	rest, ok := strings.CutPrefix(key, b.options.Namespace+":{")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "}")
}

// memberName returns a new name for the consumer of a member. The name ends with the lease,
// because another member may take over its messages only after that time
// (lua/with/lease.lua). The consumer "parked" is no member: it owns the delayed messages.
// Maintain does not trim them, because they are pending.
func memberName(lease time.Duration) string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s-%d-%s-%d", host, os.Getpid(), strings.ToLower(rand.Text()[:8]), millis(lease))
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
// 01795243593723-00000000000000000000. Redis accepts a position in place of an id.
// Positions compare as strings.
const (
	milliDigits  = 14
	serialDigits = 20
	positionLen  = milliDigits + 1 + serialDigits
	noPosition   = "0-0" // lower than the position of any message
)

// position returns the position of an id in the form that Redis writes.
func position(mem *slab.Slab, id []byte) string {
	const zeros = "00000000000000000000"
	var room [positionLen]byte
	millis, serial, _ := bytes.Cut(id, []byte("-"))
	to := append(room[:0], zeros[:max(milliDigits-len(millis), 0)]...)
	to = append(append(to, millis...), '-')
	to = append(to, zeros[:max(serialDigits-len(serial), 0)]...)
	return mem.Text(append(to, serial...))
}

// checkPosition returns ErrRefused if p is not a position of this backend.
func checkPosition(p string) error {
	ok := len(p) == positionLen && p[milliDigits] == '-' && strings.Trim(p[:milliDigits], "0123456789") == ""
	if ok { // the second number of an id is at most 2⁶⁴−1
		_, err := strconv.ParseUint(p[milliDigits+1:], 10, 64)
		ok = err == nil
	}
	if !ok {
		return fmt.Errorf("%w: %.50q is not a position in a stream", backend.ErrRefused, p)
	}
	return nil
}
