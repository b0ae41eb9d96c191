package partition

import (
	"cmp"
	"slices"
	"time"
)

// Quota returns how many of n partitions each of some members may own. The sum of all quotas is
// at least n, so that no partition stays without an owner.
func Quota(n, members int) int {
	members = max(members, 1)
	return (n + members - 1) / members
}

// surplus returns the claims that are to be given back so that at most quota stay: the newest
// ones, because the others have worked for longer.
func surplus(claims []*Claim, quota int) []*Claim {
	if len(claims) <= quota {
		return nil
	}
	claims = slices.SortedFunc(slices.Values(claims), func(a, b *Claim) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.Partition, b.Partition))
	})
	return claims[quota:]
}

const (
	beatEvery  = time.Second      // time between two notes of a member
	lookEvery  = beatEvery / 2    // time between two looks at the notes, so that a partition is without work for less than a second
	deadAfter  = 3 * time.Second  // a member without a new note for so long is no member
	mostStep   = 2 * beatEvery    // bounds the age that a note gets by one look, so that an outage of the broker ends no member
	forgetting = 10 * time.Second // the note of a dead member is then removed
)

// A census knows the present members of a group, by the notes in the members' topic.
type census struct {
	last  time.Time // of the last look
	notes map[string]*note
}

// A note is the last message of a member.
type note struct {
	Member string `json:"member"`
	Name   string `json:"name"`
	Group  string `json:"group"`
	Owned  string `json:"owned"`           // by Ranges
	Waits  bool   `json:"waits,omitempty"` // for the end of a change of the number, and has no share

	position string
	age      time.Duration // how long it has been the last one, as far as this process has looked
}

// look records the notes that are stored at the time now. It returns the positions of the notes
// that are to be removed, because their members are dead or have written newer ones.
func (c *census) look(now time.Time, stored []note) (spent []string) {
	step := time.Duration(0)
	if !c.last.IsZero() {
		step = min(now.Sub(c.last), mostStep)
	}
	c.last = now
	before := c.notes
	c.notes = map[string]*note{}
	for _, n := range stored {
		if old := c.notes[n.Member]; old != nil {
			spent = append(spent, old.position)
		}
		c.notes[n.Member] = &n
	}
	for id, n := range c.notes {
		if old := before[id]; old != nil && old.position == n.position {
			n.age = old.age + step
		}
		if n.age > forgetting {
			spent = append(spent, n.position)
		}
	}
	return spent
}

// members returns how many members group has, without the member id itself.
func (c *census) members(group, id string) (others int) {
	for _, n := range c.notes {
		if n.Group == group && n.Member != id && !n.Waits && n.age <= deadAfter {
			others++
		}
	}
	return others
}
