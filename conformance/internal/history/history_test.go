package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A simulation generates random events of two groups with two members each. Each key
// belongs to one member. If fault is not empty, the simulation breaks this rule now and
// then.
type simulation struct {
	*History
	random *rand.Rand
	fault  string
	queues map[string][]*queued // the messages that each group has not settled
}

type queued struct {
	id, key, member string
	attempt         int
}

var groups = []string{"billing", "shipping"}

func simulate(seed uint64, n int, fault string) *History {
	s := &simulation{&History{}, rand.New(rand.NewPCG(seed, 0)), fault, map[string][]*queued{}}
	for i := range n {
		s.publish(fmt.Sprint(i))
	}
	for _, g := range groups {
		for len(s.queues[g]) > 0 {
			s.deliver(g)
		}
	}
	return s.History
}

// sometimes decides at random whether the simulation commits this fault now.
func (s *simulation) sometimes(fault string) bool { return s.fault == fault && s.random.IntN(40) == 0 }

func (s *simulation) publish(id string) {
	key := fmt.Sprint(s.random.IntN(5)) // one of the keys is "", which means no key
	if key == "0" {
		key = ""
	}
	unknown, refused := errors.New("unknown"), errors.New("refused")
	arrives, err := true, error(nil)
	switch s.random.IntN(20) {
	case 0:
		err, arrives = unknown, s.random.IntN(2) == 0
	case 1:
		err, arrives = refused, s.sometimes("refused") || s.fault == "refused"
	}
	if s.sometimes("invented") {
		id = "stranger " + id
	} else {
		s.Publish(id, key, func() error { return err }, func(err error) bool { return errors.Is(err, refused) })
	}
	for _, g := range groups {
		if arrives && !s.sometimes("lost") {
			s.queues[g] = append(s.queues[g], &queued{id: id, key: key, member: g + "-" + fmt.Sprint(len(key)%2)})
		}
	}
}

// pick returns the index of one of the first messages in q. No earlier message in q has the
// same key.
func (s *simulation) pick(q []*queued) int {
	i := s.random.IntN(min(len(q), 8))
	for j := range i {
		if q[j].key == q[i].key && q[i].key != "" && !s.sometimes("order") {
			return j
		}
	}
	return i
}

// deliver lets a group handle a message.
func (s *simulation) deliver(group string) {
	q := s.queues[group]
	i := s.pick(q)
	m := q[i]
	m.attempt++
	attempt := m.attempt
	if s.sometimes("attempts") {
		attempt++
	}
	say := func(k Kind) {
		s.Record(Event{Kind: k, ID: m.id, Group: group, Member: m.member, Attempt: attempt})
	}
	say(Delivered)
	settled := true
	switch s.random.IntN(6) {
	case 0:
		say(Returned)
		settled = s.sometimes("forgotten")
		if s.sometimes("held") { // later messages of its key are handled before
			settled = true
			s.queues[group] = append(s.queues[group], m)
		}
	case 1:
		say(Buried)
		if s.sometimes("buried twice") {
			say(Buried)
		}
	default:
		say(Handled)
		say(Acked)
		settled = !s.sometimes("redelivered")
	}
	if settled {
		copy(q[1:], q[:i])
		s.queues[group] = s.queues[group][1:]
	}
}

// TestFaultsAreFound checks for each fault that its first rule finds the fault, and that no
// rule outside its list finds anything.
func TestFaultsAreFound(t *testing.T) {
	for fault, rules := range map[string][]Rule{
		"":             nil,
		"lost":         {NothingLost},
		"invented":     {NothingInvented},
		"refused":      {NothingInvented},
		"attempts":     {AttemptsCount},
		"redelivered":  {SettledForGood},
		"order":        {KeyOrder, KeyHeld},
		"held":         {KeyHeld},
		"buried twice": {BuriedOnce},
		"forgotten":    {EverythingSettles, KeyHeld},
	} {
		t.Run(fault, func(t *testing.T) {
			for seed := range uint64(10) {
				found := map[Rule]bool{}
				findings := simulate(seed, 1000, fault).Check(Expect{Groups: groups, Ordered: true})
				for _, f := range findings {
					found[f.Rule] = true
					if !slices.Contains(rules, f.Rule) {
						t.Errorf("seed %d: got %v, want nothing of the kind", seed, f)
					}
				}
				if len(rules) > 0 && !found[rules[0]] {
					t.Errorf("seed %d: got %v, want a breach of %q", seed, findings, rules[0])
				}
			}
		})
	}
}

func TestAttempts(t *testing.T) {
	for _, c := range []struct {
		attempts []int
		clean    map[Attempts]bool
	}{
		{[]int{1, 2, 3}, map[Attempts]bool{Exact: true, Growing: true, Uncounted: true}},
		{[]int{1, 3, 4}, map[Attempts]bool{Growing: true, Uncounted: true}},
		{[]int{2, 3}, map[Attempts]bool{Growing: true, Uncounted: true}},
		{[]int{1, 2, 2}, map[Attempts]bool{Uncounted: true}},
		{[]int{0, 0}, map[Attempts]bool{Uncounted: true}},
	} {
		for _, a := range []Attempts{Exact, Growing, Uncounted} {
			var h History
			h.Record(Event{Kind: Tried, ID: "1"})
			for _, n := range c.attempts {
				h.Record(Event{Kind: Delivered, ID: "1", Group: "g", Member: "m", Attempt: n})
			}
			h.Record(Event{Kind: Acked, ID: "1", Group: "g", Member: "m"})
			if findings := h.Check(Expect{Groups: []string{"g"}, Attempts: a}); (len(findings) == 0) != c.clean[a] {
				t.Errorf("attempts %v as %d: got %v, want clean: %v", c.attempts, a, findings, c.clean[a])
			}
		}
	}
}

// TestOrderIsWithinAMember checks that the order of a member ignores a message that another
// member got before.
func TestOrderIsWithinAMember(t *testing.T) {
	var h History
	for _, id := range []string{"1", "2"} {
		h.Record(Event{Kind: Tried, ID: id, Key: "k"})
	}
	h.Record(Event{Kind: Delivered, ID: "1", Group: "g", Member: "gone", Attempt: 1})
	h.Record(Event{Kind: Delivered, ID: "2", Group: "g", Member: "stays", Attempt: 1})
	h.Record(Event{Kind: Delivered, ID: "1", Group: "g", Member: "stays", Attempt: 2})
	for _, id := range []string{"1", "2"} {
		h.Record(Event{Kind: Acked, ID: id, Group: "g", Member: "stays"})
	}
	if findings := h.Check(Expect{Groups: []string{"g"}, Ordered: true}); len(findings) > 0 {
		t.Errorf("got %v, want nothing", findings)
	}
}

// TestLostLeasesHoldBackNothing checks that no message waits for a message whose lease was
// lost, even if Lost is recorded later.
func TestLostLeasesHoldBackNothing(t *testing.T) {
	for _, lost := range []bool{true, false} {
		var h History
		for _, id := range []string{"1", "2"} {
			h.Record(Event{Kind: Tried, ID: id, Key: "k"})
		}
		h.Record(Event{Kind: Delivered, ID: "1", Group: "g", Member: "m", Attempt: 1})
		h.Record(Event{Kind: Delivered, ID: "2", Group: "g", Member: "m", Attempt: 1})
		if lost {
			h.Record(Event{Kind: Lost, ID: "1", Group: "g"})
		}
		h.Record(Event{Kind: Acked, ID: "2", Group: "g", Member: "m"})
		h.Record(Event{Kind: Delivered, ID: "1", Group: "g", Member: "m", Attempt: 2})
		h.Record(Event{Kind: Acked, ID: "1", Group: "g", Member: "m"})
		if findings := h.Check(Expect{Groups: []string{"g"}, Ordered: true}); (len(findings) == 0) != lost {
			t.Errorf("lease lost: %v: got %v", lost, findings)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	h := simulate(1, 20_000, "")
	for b.Loop() {
		if findings := h.Check(Expect{Groups: groups, Ordered: true}); len(findings) > 0 {
			b.Fatalf("got %v, want nothing", findings)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(h.Len()), "ns/event")
}
