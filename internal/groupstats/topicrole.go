package groupstats

import (
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/partition"
)

// LettersSuffix ends the default name of a dead-letter topic.
const LettersSuffix = ".dlq"

// A role says what a topic is for, by its name.
type role int

const (
	plain       role = iota // a topic of a program
	isPartition             // one partition of a topic
	isOwners                // the tokens of partitions; its members are the members of the groups
	isInner                 // another topic of the bus, whose events are not those of a program
	isLog                   // the log of scheduled events, if it has no group
)

// roleOf returns the role of a topic, the topic to which it belongs, and the number of a partition.
func roleOf(name string) (r role, of string, number int) {
	if of, ok := strings.CutSuffix(name, later.Suffix+".token"); ok && of != "" {
		return isInner, of, 0
	}
	if of, ok := strings.CutSuffix(name, later.Suffix); ok && of != "" {
		return isLog, of, 0
	}
	if !partition.Reserved(name) {
		return plain, name, 0
	}
	cut := strings.LastIndexByte(name, '.')
	of, last := name[:cut], name[cut+1:]
	if digits, ok := strings.CutPrefix(last, "partition-"); ok {
		n, err := strconv.Atoi(digits)
		if err == nil && of != "" && n < partition.Most && partition.Topic(of, n) == name {
			return isPartition, of, n
		}
		return plain, name, 0
	}
	if of, _, _ = strings.Cut(name, ".partitions"); of == "" {
		return plain, name, 0
	}
	switch name {
	case partition.OwnersTopic(of):
		return isOwners, of, 0
	case partition.NumberTopic(of), partition.MembersTopic(of), partition.FailedTopic(of):
		return isInner, of, 0
	}
	return plain, name, 0
}
