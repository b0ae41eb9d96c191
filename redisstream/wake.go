package redisstream

import (
	"context"
	"time"
)

// isDue reports whether the script is to be run.
func (s *source) isDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.sweep)
}

// sleep begins to wait and returns for how long, in milliseconds. Zero would be
// for ever.
func (s *source) sleep() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = true
	return min(max(millis(time.Until(s.sweep)), 1), millis(block))
}

func (s *source) wake() {
	s.mu.Lock()
	s.waits = false
	s.mu.Unlock()
}

// sweepFrom begins a run of the script, and says when to run the next one at the
// latest. A Delay that the run may not see moves that moment by dueIn meanwhile.
func (s *source) sweepFrom(next time.Time) {
	s.mu.Lock()
	s.sweep = next
	s.mu.Unlock()
}

// sweepBy makes the script run at a moment, if it would have run later. It reports
// whether a read waits for longer than that.
func (s *source) sweepBy(at time.Time) (waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.Before(s.sweep) {
		return false
	}
	s.sweep = at
	return s.waits
}

// dueIn makes the script run when something falls due.
func (s *source) dueIn(d time.Duration) {
	if s.sweepBy(time.Now().Add(d)) {
		s.unblock()
	}
}

// waiting returns the id of the connection on which a read waits, or 0 if none does
// or the id is not known.
func (s *source) waiting() int64 {
	s.mu.Lock()
	waits := s.waits
	s.mu.Unlock()
	if c := s.reader.line.Load(); waits && c != nil {
		return c.id
	}
	return 0
}

const unblockAgain = time.Millisecond // after the server said that nobody waits

// unblock ends the wait of a read that is under way, if it can. The server may get
// the request to do so before it gets the read itself: it answers that nobody waits,
// and is asked again until the read has ended. At worst the read ends a little later.
func (s *source) unblock() {
	if s.waiting() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), block) //nolint:forbidigo // it is sent when the read's context is done
	defer cancel()
	_ = s.backend.with(ctx, func(w *wire) error {
		return w.do(ctx, 0, func(ctx context.Context) error {
			node, err := s.backend.node(ctx, s.stream)
			for id := s.waiting(); id != 0 && err == nil; id = s.waiting() {
				var woken int64
				if woken, err = node.ClientUnblock(ctx, id).Result(); woken > 0 {
					break
				}
				select {
				case <-ctx.Done():
				case <-time.After(unblockAgain):
				}
			}
			return err
		})
	})
}
