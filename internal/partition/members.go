package partition

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// A Member is a member of a group, as its last note describes it.
type Member struct {
	ID    string // differs between all members
	Name  string // of the process
	Group string
	Owned []int         // the partitions that it owned, sorted
	Lives bool          // it has written another note less than three seconds ago, as far as the looks tell
	Quiet time.Duration // for how long the looks have found the same note

	position string // of the note
}

// Silent reports whether the member has written no other note for three seconds. A member that does
// not live and is not silent was seen too short.
func (m *Member) Silent() bool { return m.Quiet >= deadAfter }

const lookAgain = beatEvery / 4 // time between two looks of Members

// A Roll is the memory of looks at the members of one topic. The zero Roll is ready to use. It has one
// caller at a time.
type Roll struct {
	last map[string]sighting // by the ID of the member
}

// A sighting is the last note of a member.
type sighting struct {
	position string
	since    time.Time // the first look that has found it
	another  bool      // it is not the first note that was found
}

// Look returns the members of all groups of topic that have a note, sorted by group and name. A first
// look cannot tell who lives. The note of a process that was killed stays until another member removes
// it, after ten seconds.
func (r *Roll) Look(ctx context.Context, b backend.Backend, topic string) ([]Member, error) {
	notes, err := lastNotes(ctx, b, topic)
	if err != nil {
		return nil, err
	}
	now, last := time.Now(), make(map[string]sighting, len(notes))
	members := make([]Member, 0, len(notes))
	for id, m := range notes {
		s, ok := r.last[id]
		if s.position != m.position {
			s = sighting{m.position, now, ok}
		}
		last[id] = s
		m.Quiet = now.Sub(s.since)
		m.Lives = s.another && !m.Silent()
		members = append(members, m)
	}
	r.last = last
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return members, nil
}

// Members returns the members of all groups of topic that have a note. It looks until each of them has
// written another note, or has gone, or three seconds have passed: then the other ones are dead, or
// stand still.
func Members(ctx context.Context, b backend.Backend, topic string) ([]Member, error) {
	var r Roll
	members, err := r.Look(ctx, b, topic)
	if err != nil || len(members) == 0 {
		return nil, err
	}
	for until := time.Now().Add(deadAfter); ; {
		wait.Sleep(ctx, lookAgain)
		if members, err = r.Look(ctx, b, topic); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(members, func(m Member) bool { return !m.Lives }) || !time.Now().Before(until) {
			return members, nil
		}
	}
}

// lastNotes returns the last note of each member, by its ID.
func lastNotes(ctx context.Context, b backend.Backend, topic string) (map[string]Member, error) {
	r := roster{backend: b, topic: MembersTopic(topic)}
	notes, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	last := map[string]Member{}
	for _, n := range notes { // a newer note of a member is behind the others
		last[n.Member] = Member{ID: n.Member, Name: n.Name, Group: n.Group, Owned: parseRanges(n.Owned), position: n.position}
	}
	return last, nil
}

// Whole returns the topic whose inner topic has the given name; "": it is no inner topic.
func Whole(name string) string {
	for _, suffix := range []string{"." + shared, "." + shared + ".owners", "." + shared + ".members", "." + shared + ".failed"} {
		if topic, ok := strings.CutSuffix(name, suffix); ok {
			return topic
		}
	}
	topic, _, _ := Cut(name)
	return topic
}

// Cut returns the topic and the number of the partition whose name is given. It reports whether the
// name is one of a partition.
func Cut(name string) (topic string, i int, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", 0, false
	}
	number, ok := strings.CutPrefix(name[dot+1:], part)
	i, err := strconv.Atoi(number)
	if !ok || err != nil || i < 0 || strconv.Itoa(i) != number {
		return "", 0, false
	}
	return name[:dot], i, true
}

// Ranges returns sorted numbers as a text, such as "0-3,7".
func Ranges(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		first := i
		for i++; i < len(numbers) && numbers[i] == numbers[i-1]+1; {
			i++
		}
		if first > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(numbers[first]))
		if i-first > 1 {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(numbers[i-1]))
		}
	}
	return b.String()
}

// parseRanges is the reverse of Ranges. It leaves out parts that Ranges does not write, because
// another program may have written the text.
func parseRanges(text string) (numbers []int) {
	for some := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(some, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 0 || last >= Most || len(numbers) > 0 && first <= numbers[len(numbers)-1] {
			continue
		}
		for i := first; i <= last; i++ {
			numbers = append(numbers, i)
		}
	}
	return numbers
}
