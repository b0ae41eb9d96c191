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

// dueIn makes the script run when something falls due, if that is earlier than
// it would have run.
func (s *source) dueIn(d time.Duration) {
	at := time.Now().Add(d)
	s.mu.Lock()
	sooner := at.Before(s.sweep)
	if sooner {
		s.sweep = at
	}
	waits := s.waits
	s.mu.Unlock()
	if sooner && waits {
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

// wakeWait bounds waking a read: it would end by itself soon.
const wakeWait = 200 * time.Millisecond

// unblock ends the wait of a read that is under way, if it can.
func (s *source) unblock() {
	s.mu.Lock()
	id := s.id
	waits := s.waits && s.dial == s.reader.dials.Load() // a server that was restarted gives ids anew
	s.mu.Unlock()
	if id == 0 || !waits {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeWait) //nolint:forbidigo // it is sent when the read's context is done
	defer cancel()
	w, err := s.backend.wires.Get(ctx)
	if err != nil {
		return
	}
	defer s.backend.wires.Put(w)
	w.do(ctx, 0, func() {
		if node, err := nodeOf(ctx, w.client, s.stream); err == nil {
			_ = node.ClientUnblock(ctx, id).Err() // at worst the read ends a little later
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
