package nats

import (
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/internal/slab"
)

// A box has what a tap has taken for one inbox. It is never full: no more arrives
// than was asked for.
type box struct {
	some   chan struct{}          // gets something when more is here
	sid    int                    // of its subscription, guarded by the tap; 0: not known
	outlet atomic.Pointer[outlet] // of the connection whose server knows the inbox, or is about to; nil: none

	mu      sync.Mutex
	arrived []arrival
}

func newBox() *box { return &box{some: make(chan struct{}, 1)} }

// put copies messages into it from where they were read. Names are apart from
// headers: who keeps a delivery to acknowledge it keeps only those.
func (b *box) put(frames []frame) {
	var names, mem slab.Slab
	for i := range frames {
		names.Expect(0, 0, len(frames[i].name()))
		mem.Expect(len(frames[i].data()), 0, len(frames[i].text()))
	}
	b.mu.Lock()
	for i := range frames {
		f := &frames[i]
		b.arrived = append(b.arrived, f.arrival(names.Text(f.name()), mem.Text(f.text()), mem.Payload(f.data())))
	}
	b.mu.Unlock()
	b.tell()
}

// add puts one into it that has memory of its own.
func (b *box) add(a arrival) {
	b.mu.Lock()
	b.arrived = append(b.arrived, a)
	b.mu.Unlock()
	b.tell()
}

func (b *box) tell() {
	select {
	case b.some <- struct{}{}:
	default:
	}
}

// swap empties it, in exchange for memory.
func (b *box) swap(memory []arrival) []arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.arrived) == 0 {
		return memory
	}
	memory, b.arrived = b.arrived, memory
	return memory
}
