package console

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A shared lets requests for the same thing share one reading. Its goroutines end with their calls,
// which have a timeout.
type shared struct {
	mu  sync.Mutex
	all map[string]*result
}

// A result is the outcome of a call, when done is closed.
type result struct {
	done  chan struct{}
	value any
	err   error
	ended time.Time
}

const (
	goodFor    = 2 * time.Second // how long a result is used again
	mostShared = 64
)

func newShared() *shared { return &shared{all: map[string]*result{}} }

// get returns the result of f for key. The context of f has no end, because several may wait for it.
func (s *shared) get(ctx context.Context, key string, f func(context.Context) (any, error)) (any, error) {
	s.mu.Lock()
	s.forget(time.Now())
	r := s.all[key]
	if r == nil {
		r = &result{done: make(chan struct{})}
		if len(s.all) < mostShared {
			s.all[key] = r
		}
		go func() {
			value, err := call(context.WithoutCancel(ctx), f)
			s.mu.Lock()
			defer s.mu.Unlock()
			r.value, r.err, r.ended = value, err, time.Now()
			if err != nil && s.all[key] == r {
				delete(s.all, key)
			}
			close(r.done)
		}()
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call calls f. A panic becomes an error, because it would end the program: no server recovers it here.
func call(ctx context.Context, f func(context.Context) (any, error)) (value any, err error) {
	defer func() {
		if v := recover(); v != nil {
			value, err = nil, fmt.Errorf("the page has panicked: %v", v)
		}
	}()
	return f(ctx)
}

// drop drops all results, because a change has made them old.
func (s *shared) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.all)
}

// forget drops results that are too old.
func (s *shared) forget(now time.Time) {
	for key, r := range s.all {
		if !r.ended.IsZero() && now.Sub(r.ended) > goodFor {
			delete(s.all, key)
		}
	}
}
