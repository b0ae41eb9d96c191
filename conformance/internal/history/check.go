package history

import (
	"fmt"
	"slices"
)

// Attempts is a rule for the attempt numbers of a message in a group.
type Attempts uint8

const (
	Exact     Attempts = iota // the nth delivery of a message in a group has attempt n
	Growing                   // each is greater than the last, with gaps for deliveries that reached no handler
	Uncounted                 // anything
)

// Expect says which rules [History.Check] checks, beyond the rules for every history.
type Expect struct {
	Groups   []string // each must have settled every message that was stored
	Attempts Attempts

	// Ordered expects that each member first handles messages of a key in the order of
	// their Tried events. Each must wait until the one before was handled, acknowledged or
	// buried. A key must have one publisher.
	Ordered bool
}

// A Rule is a rule that a history must keep.
type Rule string

// The rules.
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

// mostFindings bounds the findings of one rule.
const mostFindings = 10

// Check returns the breaches of the rules, at most ten of each rule. Its time is linear in
// the number of events.
func (h *History) Check(expect Expect) []Finding {
	h.mu.Lock()
	events := slices.Clone(h.events)
	h.mu.Unlock()
	c := &checker{
		expect: expect, count: map[Rule]int{},
		messages: map[string]*message{}, receipts: map[inGroup]*receipts{}, lanes: map[inLane]*lane{},
	}
	for _, e := range events { // in advance, because Lost may be recorded late
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

// A checker has the state of each message, and of each message in each group.
type checker struct {
	expect   Expect
	findings []Finding
	count    map[Rule]int
	messages map[string]*message
	order    []string // IDs in the order of their Tried events
	receipts map[inGroup]*receipts
	lanes    map[inLane]*lane
}

type message struct {
	key             string
	number          int // of its Tried event among all, from 1
	stored, refused bool
}

type inGroup struct{ group, id string }

// receipts is the record of one message in one group.
type receipts struct {
	delivered int
	attempt   int // of the last delivery
	buried    int
	settled   bool
	lost      bool   // a Lost event is recorded
	member    string // the first member that got it
}

type inLane struct{ group, member, key string }

// A lane is the record of one key in one member.
type lane struct {
	first int    // number of the last message that no other member got before
	open  string // ID of the message that was delivered and is not done yet
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

// ordered checks the order of messages that this member was the first to get. A message
// that another member got before is not checked.
func (c *checker) ordered(e Event, r *receipts, m *message) {
	if r.delivered == 1 {
		r.member = e.Member
	}
	if r.member != e.Member || r.lost {
		return
	}
	at := inLane{e.Group, e.Member, m.key}
	l := c.lanes[at]
	if l == nil {
		l = &lane{}
		c.lanes[at] = l
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

// done notes that the next message of e's key may begin.
func (c *checker) done(e Event) {
	m := c.messages[e.ID]
	if m == nil {
		return
	}
	if l := c.lanes[inLane{e.Group, c.of(e).member, m.key}]; l != nil && l.open == e.ID {
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

// end checks the events that must have happened by now.
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
