package publish

import (
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

// A callQueue holds calls in state queued, in order.
type callQueue struct{ calls []*call }

func (l *callQueue) add(c *call) {
	c.queue = l
	l.calls = append(l.calls, c)
}

func (l *callQueue) remove(c *call) { l.calls = without(l.calls, c) }

// take removes all calls from l and returns them.
func (l *callQueue) take() []*call {
	all := l.calls
	l.calls = nil
	return all
}

// A topicKey is a key of a topic.
type topicKey struct{ topic, key string }

// A keyFence keeps the order of a key. It is needed when a caller returns while its call is still
// being written: the caller's next call may use the same key and must be stored after this one.
// Until that write has ended, no other message with the key is written.
type keyFence struct {
	writes int       // calls that were left while being written, counted once per message
	queue  callQueue // the calls that are waiting for these writes to end
}

// queueFor returns the queue in which c must wait if it isn't written at once.
func (cs *calls) queueFor(c *call) *callQueue {
	if len(cs.fences) > 0 {
		for _, m := range c.msgs {
			if b := cs.fences[keyOf(m)]; b != nil {
				return &b.queue
			}
		}
	}
	if len(cs.suspects) > 0 {
		for _, m := range c.msgs {
			if s := cs.suspects[m.Topic]; s != nil && s.marked {
				return &s.queue
			}
		}
	}
	return &cs.queue
}

func keyOf(m *backend.Message) topicKey { return topicKey{m.Topic, m.Key} }

// requeue puts calls, which have left a queue, into the queues where they must wait now. In the
// main queue they go to the front, because they have waited longer.
func (cs *calls) requeue(calls []*call) {
	var first callQueue
	for _, c := range calls {
		l := cs.queueFor(c)
		if l == &cs.queue {
			l = &first
		}
		l.add(c)
	}
	for _, c := range first.calls {
		c.queue = &cs.queue
	}
	cs.queue.calls = slices.Concat(first.calls, cs.queue.calls)
}

// fenceKeys records that the caller of c has left while c is being written.
func (cs *calls) fenceKeys(c *call) {
	fresh := false
	for _, m := range c.msgs {
		if m.Key == "" { // it isn't ordered
			continue
		}
		b := cs.fences[keyOf(m)]
		if b == nil {
			b, fresh = &keyFence{}, true
			cs.fences[keyOf(m)] = b
		}
		b.writes++
	}
	if fresh {
		cs.requeue(cs.queue.take())
		for _, s := range cs.suspects {
			cs.requeue(s.queue.take())
		}
	}
}

// unfenceKeys records that the write of msgs has ended. They are copies of the messages of a call
// that its caller has left.
func (cs *calls) unfenceKeys(msgs []backend.Message) {
	for i := range msgs {
		b := cs.fences[keyOf(&msgs[i])]
		if b == nil { // without a key
			continue
		}
		if b.writes--; b.writes == 0 {
			delete(cs.fences, keyOf(&msgs[i]))
			cs.requeue(b.queue.take())
		}
	}
}
