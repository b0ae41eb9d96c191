package history

import (
	"fmt"
	"slices"
)

// Attempts is a rule for the attempt numbers of a message in a group.
type Attempts uint8

const (
	Exact     Attempts = iota // the nth delivery of a message in a group has attempt n
	Growing                   // each attempt number is greater than the previous one; deliveries that reached no handler leave gaps
	Uncounted                 // attempt numbers are not checked
)

// Expect selects rules that [History.Check] checks in addition to the rules for every
// history.
type Expect struct {
	Groups   []string // groups that must have settled every stored message
	Attempts Attempts

	// Ordered checks two promises for the messages of a key in each member. The first
	// deliveries must be in the order of the messages' Tried events. Each message must wait
	// until the previous message was handled, acknowledged or buried. A key must have only
	// one publisher.
	Ordered bool
}

// A Rule is a rule that a history must keep.
type Rule string

// The rules that [History.Check] can check.
const (
	NothingLost       Rule = "what was stored is delivered"
	NothingInvented   Rule = "what is delivered was published, and not refused"
	AttemptsCount     Rule = "attempts are counted"
	SettledForGood    Rule = "what is acknowledged or buried is not delivered again"
	KeyOrder          Rule = "messages of a key are handled in order"
	KeyHeld           Rule = "a message holds back those of its key until it is done"
	BuriedOnce        Rule = "a message is buried once"
	EverythingSettles Rule = "in the end everything is acknowledged or buried"
)

// A Finding is one breach of a rule.
type Finding struct {
	Rule  Rule
	Group string
	ID    string
	Text  string // a description of the breach
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: group %s, message %s: %s", f.Rule, f.Group, f.ID, f.Text)
}

// mostFindings is the greatest number of findings of one rule.
const mostFindings = 10

// Check returns the breaches of the rules, at most ten of each rule. Its time is linear in
// the number of events.
func (h *History) Check(expect Expect) []Finding {
	h.mu.Lock()
	events := slices.Clone(h.events)
	h.mu.Unlock()
	c := &checker{
		expect: expect, count: map[Rule]int{},
		messages: map[string]*message{}, receipts: map[inGroup]*receipts{}, keys: map[memberKey]*keyState{},
	}
	for _, e := range events { // first all Lost events, because a Lost event may be recorded after the deliveries that it excuses
		if e.Kind == Lost {
			c.of(e).lost = true
		}
	}
	for _, e := range events {
		c.event(e)
	}
	c.end()
	return c.findings
}

// A checker tracks the state of each message, overall and in each group.
type checker struct {
	expect   Expect
	findings []Finding
	count    map[Rule]int
	messages map[string]*message
	order    []string // IDs in the order of their Tried events
	receipts map[inGroup]*receipts
	keys     map[memberKey]*keyState
}

type message struct {
	key             string
	number          int // the number of this message's Tried event among all Tried events; the first is 1
	stored, refused bool
}

type inGroup struct{ group, id string }

// A receipts is the record of one message in one group.
type receipts struct {
	delivered int
	attempt   int // the attempt number of the last delivery
	buried    int
	settled   bool
	lost      bool   // the history has a Lost event of the message in this group
	member    string // the first member that got the message
}

type memberKey struct{ group, member, key string }

// A keyState is the state of the messages of one key in one member.
type keyState struct {
	first int    // the number of the last message that this member was the first to get; 0 if there is none
	open  string // ID of the message that was delivered and not done; "" if there is none
}

func (c *checker) event(e Event) {
	switch e.Kind {
	case Tried:
		c.messages[e.ID] = &message{key: e.Key, number: len(c.order) + 1}
		c.order = append(c.order, e.ID)
	case Stored, Refused:
		if m := c.messages[e.ID]; m != nil {
			m.stored, m.refused = m.stored || e.Kind == Stored, e.Kind == Refused
		}
	case Delivered:
		c.delivered(e)
	case Handled:
		c.done(e)
	case Acked:
		c.of(e).settled = true
		c.done(e)
	case Buried:
		r := c.of(e)
		r.settled = true
		if r.buried++; r.buried > 1 {
			c.find(BuriedOnce, e, "found %d times", r.buried)
		}
		c.done(e)
	}
}

func (c *checker) delivered(e Event) {
	r, m := c.of(e), c.messages[e.ID]
	r.delivered++
	switch {
	case m == nil:
		c.find(NothingInvented, e, "nobody published it")
		return
	case m.refused:
		c.find(NothingInvented, e, "its publish was refused")
	}
	if r.settled {
		c.find(SettledForGood, e, "delivered to %s as attempt %d", e.Member, e.Attempt)
	}
	switch {
	case c.expect.Attempts == Exact && e.Attempt != r.delivered:
		c.find(AttemptsCount, e, "delivery %d has attempt %d", r.delivered, e.Attempt)
	case c.expect.Attempts == Growing && e.Attempt <= r.attempt:
		c.find(AttemptsCount, e, "attempt %d comes after %d", e.Attempt, r.attempt)
	}
	r.attempt = e.Attempt
	if c.expect.Ordered && m.key != "" {
		c.ordered(e, r, m)
	}
}

// ordered checks the delivery e against the order of its key. It checks nothing if another
// member was the first to get the message, or if a lease of the message was lost.
func (c *checker) ordered(e Event, r *receipts, m *message) {
	if r.delivered == 1 {
		r.member = e.Member
	}
	if r.member != e.Member || r.lost {
		return
	}
	at := memberKey{e.Group, e.Member, m.key}
	l := c.keys[at]
	if l == nil {
		l = &keyState{}
		c.keys[at] = l
	}
	if r.delivered == 1 {
		if m.number < l.first {
			c.find(KeyOrder, e, "handled by %s after %s, which was published later", e.Member, c.order[l.first-1])
		}
		l.first = m.number
	}
	if l.open != "" && l.open != e.ID {
		c.find(KeyHeld, e, "handled by %s before %s was done", e.Member, l.open)
	}
	l.open = e.ID
}

// done records that e's message is done, so that the next message of its key may begin.
func (c *checker) done(e Event) {
	m := c.messages[e.ID]
	if m == nil {
		return
	}
	if l := c.keys[memberKey{e.Group, c.of(e).member, m.key}]; l != nil && l.open == e.ID {
		l.open = ""
	}
}

// of returns the record of e's message in e's group.
func (c *checker) of(e Event) *receipts {
	at := inGroup{e.Group, e.ID}
	r := c.receipts[at]
	if r == nil {
		r = &receipts{}
		c.receipts[at] = r
	}
	return r
}

// end checks that each stored message was delivered, and each delivered message was
// settled, in all groups of [Expect].
func (c *checker) end() {
	for _, id := range c.order {
		for _, group := range c.expect.Groups {
			e := Event{Group: group, ID: id}
			switch r := c.receipts[inGroup{group, id}]; {
			case r == nil || r.delivered+r.buried == 0:
				if c.messages[id].stored {
					c.find(NothingLost, e, "it was stored")
				}
			case !r.settled:
				c.find(EverythingSettles, e, "delivered %d times", r.delivered)
			}
		}
	}
}

func (c *checker) find(rule Rule, e Event, format string, args ...any) {
	if c.count[rule]++; c.count[rule] <= mostFindings {
		c.findings = append(c.findings, Finding{rule, e.Group, e.ID, fmt.Sprintf(format, args...)})
	}
}
