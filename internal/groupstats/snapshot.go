// Package groupstats tells how the groups of a backend are doing.
//
// A [Sampler] asks the backend for its topics and groups from time to time, while somebody looks. A
// [Snapshot] is the result of one round: figures, a [Status] for each group, and the lag of the last
// fifteen minutes. Topics that are partitions of one topic are one topic in a Snapshot.
package groupstats

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Snapshot has the figures of one round. Nobody changes it, so it may be shared.
type Snapshot struct {
	Taken  time.Time // when the round of these figures began; zero: there are none yet
	Tried  time.Time // when the last round ended
	Err    error     // why the last round has no figures; the figures are of an earlier one
	Topics []*Topic  // sorted by name
	Beyond int       // groups that are not described, because there are too many

	// Announced reports whether there is a topic of package presence, so that processes may have
	// announced themselves. It is none of Topics.
	Announced bool
}

// A Topic is a topic of a program, or a dead-letter topic.
type Topic struct {
	Name       string
	Exists     bool     // a topic of this name exists, besides its partitions
	Partitions []int    // the numbers of its partitions, sorted
	Inner      []string // the names of further topics of the bus that belong to it
	Groups     []*Group // sorted by name; nil if Err is set
	Depth      Count    // events that the topic keeps; unknown without a group
	Letters    *Letters // the dead letters in the topic; nil: not known to be a dead-letter topic
	Err        string   // why the groups are not known
}

// A Group is one group of a topic, in all partitions together.
type Group struct {
	Topic, Name string
	Stats
	Dead    Letters        // dead letters of the group in the topic with ".dlq"
	Pause   *backend.Pause // nil: not paused, or the backend cannot tell
	Status  Status
	Idle    time.Duration // how long the sampler has seen no progress
	History []int64       // the lag in slots of [Slot], the newest last; -1: not known
	Parts   []Part        // of a topic with partitions
	Err     string        // why the figures are not known
}

// DeadLetters returns the dead letters of the group.
func (g *Group) DeadLetters() *Letters { return &g.Dead }

// A Part has the figures of a group in one partition.
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

// Groups returns all groups, the ones in trouble first.
func (s *Snapshot) Groups() []*Group {
	var all []*Group
	for _, t := range s.Topics {
		all = append(all, t.Groups...)
	}
	slices.SortStableFunc(all, func(a, b *Group) int { return -cmp.Compare(a.Status, b.Status) })
	return all
}
