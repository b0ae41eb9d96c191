// Package groupstats reports how the groups of a backend are doing.
//
// A [Sampler] keeps polling the backend while somebody is watching, for eventbus top and the
// console. Each round yields a
// [Snapshot]: the stats of all groups, a [Status] for each, and its lag over the last fifteen minutes. A [Survey] lists
// topics and groups once, for eventbus topics and groups. Both fold the partitions of a topic into one topic.
package groupstats

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Snapshot is the result of one round. It never changes, so you may share it.
type Snapshot struct {
	Taken  time.Time // when the round of these stats began; zero: there are none yet
	Tried  time.Time // when the last round ended
	Err    error     // why the last round failed; the stats are those of an earlier one
	Topics []*Topic  // sorted by name
	Beyond int       // how many groups are left out, because there are too many

	// Announced reports whether the topic of package presence exists, so that processes may have announced themselves.
	// Topics does not include it.
	Announced bool
}

// A Topic is a topic of a program, or a dead-letter topic.
type Topic struct {
	Name       string
	Exists     bool     // a topic of this name exists, apart from its partitions
	Partitions []int    // their numbers, sorted
	Inner      []string // further topics of the bus that belong to it
	Groups     []*Group // sorted by name; nil if Err is set
	Depth      Count    // events that the topic keeps; unknown without a group
	Letters    *Letters // the dead letters in it; nil: not known to be a dead-letter topic
	Err        string   // why its groups are unknown
}

// A Group is one group of a topic, over all partitions.
type Group struct {
	Topic, Name string
	Stats
	Dead    Letters        // dead letters of the group in the topic with ".dlq"
	Pause   *backend.Pause // nil: not paused, or the backend does not know
	Status  Status
	Idle    time.Duration // how long the sampler has seen no progress
	History []int64       // the lag in each [Slot], the newest last; -1: unknown
	Parts   []Part        // the partitions, if the topic has any
	Err     string        // why the stats are unknown
}

// DeadLetters returns the dead letters of the group.
func (g *Group) DeadLetters() *Letters { return &g.Dead }

// A Part holds the stats of a group in one partition.
type Part struct {
	Number int
	Stats
	Paused bool
}

// Topic returns the topic of this name, or nil.
func (s *Snapshot) Topic(name string) *Topic {
	for _, t := range s.Topics {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Group returns the group of this name, or nil.
func (t *Topic) Group(name string) *Group {
	for _, g := range t.Groups {
		if g.Name == name {
			return g
		}
	}
	return nil
}

// Groups returns all groups, those in trouble first.
func (s *Snapshot) Groups() []*Group {
	var all []*Group
	for _, t := range s.Topics {
		all = append(all, t.Groups...)
	}
	slices.SortStableFunc(all, func(a, b *Group) int { return -cmp.Compare(a.Status, b.Status) })
	return all
}
