package ledger

import (
	"slices"
	"strings"
)

// hasWork reports whether a worker may take Holds. A batch that isn't full has to wait.
func (l *Ledger) hasWork() bool {
	n := l.startable()
	if n == 0 || l.Batch.Size == 0 {
		return n > 0
	}
	bytes := int64(0)
	oldest := Instant(0)
	for _, s := range l.readySources() {
		for c := range s.ready {
			q := &s.ready[c]
			if q.len() == 0 || !l.mayRun(class(c)) {
				continue
			}
			if at := q.first().came; oldest == 0 || at < oldest {
				oldest = at
			}
			for i := 0; l.Batch.Bytes > 0 && bytes < l.Batch.Bytes && i < q.len() && i < l.Batch.Size; i++ {
				bytes += int64(len(q.items[q.head+i].Delivery.Payload))
			}
			if l.Alone != nil && l.Alone(q.first()) {
				return true
			}
		}
	}
	if n >= l.Batch.Size || l.Batch.Bytes > 0 && bytes >= l.Batch.Bytes {
		return true
	}
	if due := oldest.Plus(l.Batch.Wait); due > l.Now && !l.closed {
		l.ringBy(&l.batchDue, due)
		return false
	}
	return true
}

// rotate moves the first source to the end. Each slice and each batch starts with a different
// source, and continues with another one only when the first has run out; that way, the settler of
// a source gets many Holds at a time.
func rotate(sources []*Source) {
	if len(sources) > 1 {
		first := sources[0]
		sources[copy(sources, sources[1:])] = first
	}
}

// pickAny takes the next Hold to run. It skips Holds whose lease has expired.
func (l *Ledger) pickAny() (picked *Hold) {
	var expired []*Hold // lost afterwards, because Lose changes the queues
	for _, s := range l.readySources() {
		for picked = l.pick(s); picked != nil && picked.until <= l.Now; picked = l.pick(s) {
			expired = append(expired, picked)
		}
		if picked != nil {
			break
		}
	}
	for _, h := range expired {
		l.Lose(h, nil)
	}
	return picked
}

// start gives h to w, as number n of its slice.
func (l *Ledger) start(h *Hold, w *Worker, n int) {
	h.state, h.worker, h.began, h.slot = taken, w, 0, int32(n)
	h.inSlice = true
	l.running[h.class]++
}

// putBack undoes pickAny.
func (l *Ledger) putBack(h *Hold) { l.enqueue(h, true) }

// takeSlice returns Holds for about a millisecond of work, but leaves some for other workers.
// Messages with the same key may follow each other in a slice. As far as keys allow, it is sorted
// by position.
func (l *Ledger) takeSlice(w *Worker) (hs []*Hold) {
	n := l.sliceLen()
	hs = w.reuse
	next := followers{ledger: l, lanes: w.lanes[:0]}
	for len(hs) < n {
		if f := next.take(); f != nil {
			l.stopWaiting(f)
			f.class = fresh
			f.lane.add(f)
			l.start(f, w, len(hs))
			hs = append(hs, f)
			next.add(f.lane)
			continue
		}
		h := l.pickAny()
		if h == nil {
			break
		}
		if h.class == suspect && len(hs) > 0 { // it may crash the process
			l.putBack(h)
			break
		}
		l.start(h, w, len(hs))
		if hs = append(hs, h); h.class == suspect {
			break
		}
		next.add(h.lane)
	}
	clear(next.lanes)
	w.lanes = next.lanes
	rotate(l.withReady)
	return hs
}

// followers holds the lanes whose next message may join a slice because the messages before it are
// already in the slice. The lanes are sorted by that next message.
type followers struct {
	ledger *Ledger
	lanes  []*lane
}

// add adds the lane n, which may be nil, if its next message may join the slice now.
func (s *followers) add(n *lane) {
	if n == nil || len(n.queue) == 0 {
		return
	}
	l, f := s.ledger, n.queue[0]
	if f.Due > l.Now || f.until <= l.Now || !n.mayRun(f) || l.classOf(f) != fresh {
		return
	}
	i, p := len(s.lanes), f.Delivery.Position
	if i > 0 && s.lanes[i-1].queue[0].Delivery.Position > p { // rarely
		i, _ = slices.BinarySearchFunc(s.lanes, p, func(n *lane, p string) int { return strings.Compare(n.queue[0].Delivery.Position, p) })
	}
	s.lanes = slices.Insert(s.lanes, i, n)
}

// take takes the next message, or returns nil if there is none or if a ready message comes before
// it.
func (s *followers) take() *Hold {
	if len(s.lanes) == 0 {
		return nil
	}
	n := s.lanes[0]
	f := n.queue[0]
	if q := &n.source.ready[fresh]; q.len() > 0 && q.first().Delivery.Position < f.Delivery.Position {
		return nil
	}
	s.lanes = slices.Delete(s.lanes, 0, 1)
	return f
}

func (l *Ledger) sliceLen() int {
	if l.Single || l.average == 0 || l.average > sliceTime {
		return 1
	}
	ready := l.startable()
	others := max(l.Concurrency-l.working-1, 0)
	return max(min(int(sliceTime/l.average), mostSlice, (ready+others)/(others+1)), 1)
}

// takeBatch takes the Holds of a batch.
func (l *Ledger) takeBatch(w *Worker) (hs []*Hold) {
	if !l.hasWork() {
		return nil
	}
	bytes := int64(0)
	hs = w.reuse
	for len(hs) < l.Batch.Size {
		h := l.pickAny()
		if h == nil {
			break
		}
		alone := h.class == suspect || h.Hanging() > 0 || l.Alone != nil && l.Alone(h)
		size := int64(len(h.Delivery.Payload))
		if len(hs) > 0 && (alone || l.Batch.Bytes > 0 && bytes+size > l.Batch.Bytes) {
			l.putBack(h)
			break
		}
		l.start(h, w, len(hs))
		hs = append(hs, h)
		if bytes += size; alone {
			break
		}
	}
	rotate(l.withReady)
	return hs
}
