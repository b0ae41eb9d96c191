package console

import (
	"context"
	"net/http"

	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/partition"
)

// owners are the members of a group, with the partitions that each owns.
type owners struct {
	Rows    []owner // empty: the number of partitions is not known
	More    int     // members that are not shown
	Failure *failure
}

// An owner is a member. The one without a name has the partitions that no member owns.
type owner struct {
	Member     string
	State      string
	Owns       int
	Partitions string
}

const mostOwners = 200

// notes are the members of all groups of a topic.
type notes struct {
	number  int // of partitions
	members []partition.Member
}

// ownersOf returns the owners in a group, or nil for a topic without partitions.
func (c *console) ownersOf(r *http.Request, t *groupstats.Topic, group string) *owners {
	if len(t.Partitions) == 0 {
		return nil
	}
	all, err := c.notesOf(r.Context(), t.Name)
	if err != nil {
		_, f := failureOf(err)
		return &owners{Failure: &f}
	}
	members, free := partition.OwnersOf(group, all.number, all.members)
	o := &owners{More: max(len(members)-mostOwners, 0)}
	for _, m := range members[:len(members)-o.More] {
		o.Rows = append(o.Rows, owner{m.Name, stateOf(&m), len(m.Owned), partition.Ranges(m.Owned)})
	}
	if len(free) > 0 {
		o.Rows = append(o.Rows, owner{State: "free", Owns: len(free), Partitions: partition.Ranges(free)})
	}
	return o
}

// stateOf returns a word for a member.
func stateOf(m *partition.Member) string {
	switch {
	case m.Lives:
		return "lives"
	case m.Silent():
		return "silent"
	}
	return "not known yet"
}

// notesOf reads the notes of the members once. Earlier requests show which members live.
func (r *readings) notesOf(ctx context.Context, topic string) (notes, error) {
	return reading(ctx, r, "owners\x00"+topic, func(ctx context.Context) (n notes, err error) {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		if n.number, err = partition.Number(ctx, r.backend, topic); err != nil {
			return n, err
		}
		err = r.owners.use(ctx, topic, func(roll *partition.Roll) error {
			n.members, err = roll.Look(ctx, r.backend, topic)
			return err
		})
		return n, err
	})
}
