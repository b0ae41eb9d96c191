package redisstream

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// isDue reports whether the script is to be run.
func (s *source) isDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.sweep)
}

// wait begins to wait and returns for how long, in milliseconds. Zero would be
// for ever.
func (s *source) wait() int64 {
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

// learnID finds out how the server calls the reader's connection, if it is a new
// one. A server that does not say is asked again with the next connection; one that
// does not answer is an error, as what follows would not be answered either.
func (s *source) learnID(ctx context.Context) error {
	dial := s.reader.dials.Load()
	s.mu.Lock()
	known := dial > 0 && s.dial == dial
	s.mu.Unlock()
	if known {
		return nil
	}
	var id int64
	var err error
	s.reader.do(ctx, 0, func() {
		var node *redis.Client
		if node, err = nodeOf(ctx, s.reader.client, s.stream); err == nil {
			id, err = node.ClientID(ctx).Result()
		}
	})
	if _, answered := errors.AsType[redis.Error](err); err != nil && !answered {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return classOf(ctx, err, false)
	}
	s.mu.Lock()
	s.id, s.dial = id, s.reader.dials.Load() // without an id, a read is not woken
	s.mu.Unlock()
	return nil
}

// waiting returns the id of the connection on which a read waits, or 0 if none does
// or the id is not known.
func (s *source) waiting() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waits || s.dial != s.reader.dials.Load() { // a server that was restarted gives ids anew
		return 0
	}
	return s.id
}

const unblockAgain = time.Millisecond // after the server said that nobody waits

// unblock ends the wait of a read that is under way, if it can. The server may get
// the request to do so before it gets the read itself: it answers that nobody waits,
// and is asked again until the read has ended.
func (s *source) unblock() {
	if s.waiting() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), block) //nolint:forbidigo // it is sent when the read's context is done
	defer cancel()
	w, err := s.backend.wires.Get(ctx)
	if err != nil {
		return
	}
	defer s.backend.wires.Put(w)
	w.do(ctx, 0, func() {
		for id := s.waiting(); id != 0; id = s.waiting() {
			node, err := nodeOf(ctx, w.client, s.stream)
			if err != nil {
				return
			}
			if woken, err := node.ClientUnblock(ctx, id).Result(); woken > 0 || err != nil {
				return // at worst the read ends a little later
			}
			select {
			case <-ctx.Done():
			case <-time.After(unblockAgain):
			}
		}
	})
}

// nodeOf returns the client of the server that has a key.
func nodeOf(ctx context.Context, client redis.UniversalClient, key string) (*redis.Client, error) {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, key)
	}
	return client.(*redis.Client), nil
}
