package groupstats

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

func isLetters(topic string) bool {
	return strings.HasSuffix(topic, LettersSuffix) && len(topic) > len(LettersSuffix)
}

// assemble makes a Snapshot of the figures of a round. It folds the partitions of a topic.
func (r *round) assemble(letters map[string]*Letters) *Snapshot {
	s := &Snapshot{Taken: r.now, Beyond: r.memory.beyond, Announced: r.memory.announced}
	topics := map[string]*Topic{}
	topic := func(name string) *Topic {
		t := topics[name]
		if t == nil {
			t = &Topic{Name: name, Depth: backend.Unknown}
			topics[name], s.Topics = t, append(s.Topics, t)
		}
		return t
	}
	owners := map[groupName]Count{} // members by group
	for _, l := range r.memory.list {
		role, of, number := roleOf(l.topic)
		if role == isLog && len(l.groups) > 0 {
			role, of = plain, l.topic
		}
		t := topic(of)
		switch role {
		case isOwners:
			for _, g := range l.groups {
				owners[groupName{of, g.name}] = g.stats.Members
			}
			t.Inner = append(t.Inner, l.topic)
			continue
		case isInner, isLog:
			t.Inner = append(t.Inner, l.topic)
			continue
		case isPartition:
			t.Partitions = append(t.Partitions, number)
		default:
			t.Exists, t.Letters = true, letters[l.topic]
		}
		if l.err != nil {
			t.Err = l.err.Error()
		}
		for _, g := range l.groups {
			if !g.gone {
				t.addGroup(g, role == isPartition, number)
			}
		}
	}
	for _, t := range s.Topics {
		for _, g := range t.Groups {
			if n, ok := owners[groupName{t.Name, g.Name}]; ok && len(t.Partitions) > 0 {
				g.Members = n
			}
			g.Dead = letters[t.Name+LettersSuffix].Of(g.Name)
			r.judge(g)
		}
		t.finish()
	}
	slices.SortFunc(s.Topics, func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
	r.forget()
	return s
}

// addGroup adds the figures of a group in the topic itself or in one partition.
func (t *Topic) addGroup(m *measured, part bool, number int) {
	g := t.Group(m.name)
	if g == nil {
		g = &Group{Topic: t.Name, Name: m.name, Stats: m.stats, Pause: m.pause}
		t.Groups = append(t.Groups, g)
	} else {
		g.add(m.stats)
		g.Pause = cmp.Or(g.Pause, m.pause)
	}
	if m.err != nil {
		g.Err = m.err.Error()
	}
	if part {
		g.Parts = append(g.Parts, Part{Number: number, Stats: m.stats, Paused: m.pause != nil})
	}
}

// finish sorts the parts of a topic, and sets its depth.
func (t *Topic) finish() {
	slices.Sort(t.Partitions)
	slices.Sort(t.Inner)
	slices.SortFunc(t.Groups, func(a, b *Group) int { return cmp.Compare(a.Name, b.Name) })
	for _, g := range t.Groups {
		slices.SortFunc(g.Parts, func(a, b Part) int { return cmp.Compare(a.Number, b.Number) })
		t.Depth = max(t.Depth, g.Depth)
	}
}

// judge sets the status and the history of a group.
func (r *round) judge(g *Group) {
	name := groupName{g.Topic, g.Name}
	tr := r.memory.trails[name]
	if tr == nil {
		tr = &trail{}
		r.memory.trails[name] = tr
	}
	tr.round = r.memory.rounds
	short := g.lost()
	for i := range g.Parts {
		short = short || g.Parts[i].lost()
	}
	idle, lost := tr.note(r.now, &g.Stats, short)
	g.Idle, g.History = idle, tr.history()
	var age time.Duration
	if !g.Oldest.IsZero() {
		age = r.now.Sub(g.Oldest)
	}
	g.Status = judge(&evidence{
		stats: &g.Stats, paused: g.Pause != nil, lost: lost, idle: idle, age: age,
		behind: r.options.Behind, late: r.options.Stuck,
	})
}

// forget drops the memory of groups that are gone.
func (r *round) forget() {
	for name, t := range r.memory.trails {
		if t.round != r.memory.rounds {
			delete(r.memory.trails, name)
		}
	}
}
