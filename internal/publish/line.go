package publish

import (
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

// A line has calls in state queued, in order.
type line struct{ calls []*call }

func (l *line) add(c *call) {
	c.line = l
	l.calls = append(l.calls, c)
}

func (l *line) remove(c *call) { l.calls = without(l.calls, c) }

// take takes all calls out of l.
func (l *line) take() []*call {
	all := l.calls
	l.calls = nil
	return all
}

// A place is a key of a topic.
type place struct{ topic, key string }

// A behind keeps the order of a place. Some caller has left its call while the call was
// written. The caller's next call, which may have the same key, must be stored later. So no
// message of the key is written until that write has ended.
type behind struct {
	writes int  // calls that were left and are still written, counted for each message
	line   line // the calls that wait for the end of these writes
}

// lineOf returns the line where c must wait if it is not written at once.
func (cs *calls) lineOf(c *call) *line {
	if len(cs.behind) > 0 {
		for _, m := range c.msgs {
			if b := cs.behind[placeOf(m)]; b != nil {
				return &b.line
			}
		}
	}
	if len(cs.suspects) > 0 {
		for _, m := range c.msgs {
			if s := cs.suspects[m.Topic]; s != nil && s.marked {
				return &s.line
			}
		}
	}
	return &cs.queue
}

func placeOf(m *backend.Message) place { return place{m.Topic, m.Key} }

// place puts calls, which have left a line, into the lines where they wait now. In the queue
// they come first, because they have waited longer.
func (cs *calls) place(calls []*call) {
	var first line
	for _, c := range calls {
		l := cs.lineOf(c)
		if l == &cs.queue {
			l = &first
		}
		l.add(c)
	}
	for _, c := range first.calls {
		c.line = &cs.queue
	}
	cs.queue.calls = slices.Concat(first.calls, cs.queue.calls)
}

// leaveBehind records that the caller of c has left, while c is written.
func (cs *calls) leaveBehind(c *call) {
	fresh := false
	for _, m := range c.msgs {
		if m.Key == "" { // no order
			continue
		}
		b := cs.behind[placeOf(m)]
		if b == nil {
			b, fresh = &behind{}, true
			cs.behind[placeOf(m)] = b
		}
		b.writes++
	}
	if fresh {
		cs.place(cs.queue.take())
		for _, s := range cs.suspects {
			cs.place(s.line.take())
		}
	}
}

// catchUp records that the write of msgs, copies of the messages of a call that was left, has
// ended.
func (cs *calls) catchUp(msgs []backend.Message) {
	for i := range msgs {
		b := cs.behind[placeOf(&msgs[i])]
		if b == nil { // without a key
			continue
		}
		if b.writes--; b.writes == 0 {
			delete(cs.behind, placeOf(&msgs[i]))
			cs.place(b.line.take())
		}
	}
}
