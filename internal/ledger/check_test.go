package ledger

import (
	"fmt"
	"slices"
)

// check returns a sentence about the first fact of l that contradicts another one; "": there
// is none.
func (l *Ledger) check() string {
	for _, h := range l.held {
		n := h.lane
		if n == nil {
			continue
		}
		switch in, active := slices.Contains(n.queue, h), n.head == h || slices.Contains(n.next, h); {
		case h.Source.lanes[n.key] != n:
			return fmt.Sprintf("message %s is in a lane that was dropped", h.Delivery.Position)
		case in != (h.state == waiting):
			return fmt.Sprintf("message %s, state %d, in the queue of its lane: %v", h.Delivery.Position, h.state, in)
		case active == in:
			return fmt.Sprintf("message %s, state %d, active and in the queue: %v", h.Delivery.Position, h.state, in)
		}
	}
	for _, s := range l.sources {
		for key, n := range s.lanes {
			for _, h := range append(slices.Clone(n.next), n.head) {
				if h != nil && (h.lane != n || h.state == released) {
					return fmt.Sprintf("lane %q has message %s, which has left it", key, h.Delivery.Position)
				}
			}
		}
	}
	return ""
}
