// Package partition divides a topic into partitions, and the partitions among the members of a
// group.
//
// Partition i of a topic is a topic of its own, Topic(topic, i). More topics belong to it:
//
//	NumberTopic   a log that says how many partitions there are (number.go)
//	OwnersTopic   has a token for each partition, which is never settled (tokens.go)
//	MembersTopic  has one message of each present member (roster.go)
//	FailedTopic   has the keys that have failed for good, if there are any (failed.go)
//
// A member owns a partition of a group while it has the lease of the group's delivery of the
// token. A Claim (claim.go) says how long that is certain. A Coordinator (coordinator.go) takes,
// extends and gives back the tokens of one member; share.go decides how many it may have.
//
// A Change (change.go) gives a topic another number of partitions. A Pledge lets a publisher, and a heed
// a member, learn of it in time.
//
// The lease of a token is longer than the leases of the events of its partition, and an owner
// gets or extends a lease of an event only if it surely ends before the lease of the token. So when
// another member gets the token, no event of the partition is leased to anybody, unless a process was
// frozen between its look at the clock and its call.
package partition

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// Most is the greatest number of partitions of a topic.
const Most = 1024

const (
	part   = "partition-" // begins the last part of the name of a partition
	shared = "partitions" // the part of the names of the other topics
)

// Topic returns the name of the topic that is partition i of topic.
func Topic(topic string, i int) string { return topic + "." + part + strconv.Itoa(i) }

// NumberTopic returns the name of the topic that has the number of partitions of topic.
func NumberTopic(topic string) string { return topic + "." + shared }

// OwnersTopic returns the name of the topic that has the tokens of topic.
func OwnersTopic(topic string) string { return topic + "." + shared + ".owners" }

// MembersTopic returns the name of the topic that has the members of the groups of topic.
func MembersTopic(topic string) string { return topic + "." + shared + ".members" }

// FailedTopic returns the name of the topic that has the failed keys of topic.
func FailedTopic(topic string) string { return topic + "." + shared + ".failed" }

// Reserves reports whether p, a part of a name, is of a topic that this package makes.
func Reserves(p string) bool {
	if p == shared {
		return true
	}
	number, ok := strings.CutPrefix(p, part)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// Reserved reports whether name is a name that this package makes, and programs cannot take: a
// part of it after the first is reserved.
func Reserved(name string) bool {
	if !strings.Contains(name, "."+part[:len(shared)-1]) { // like most names
		return false
	}
	_, rest, _ := strings.Cut(name, ".")
	for p := range strings.SplitSeq(rest, ".") {
		if Reserves(p) {
			return true
		}
	}
	return false
}

// Of returns the partition of key among n partitions: the FNV-1a hash of 32 bits of the bytes
// of key, modulo n.
func Of(key string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // it does not fail
	return int(h.Sum32() % uint32(n))
}

// Check returns an error that says why topic cannot have partitions on b, or nil.
func Check(b backend.Backend, topic string) error {
	if err := backend.CheckName(MembersTopic(topic)); err != nil {
		return err
	}
	if _, ok := backend.As[backend.Reader](b); !ok {
		return fmt.Errorf("partitions need a backend that can read topics: %w", errors.ErrUnsupported)
	}
	if _, ok := backend.As[backend.Remover](b); !ok {
		return fmt.Errorf("partitions need a backend that can remove messages: %w", errors.ErrUnsupported)
	}
	return nil
}
