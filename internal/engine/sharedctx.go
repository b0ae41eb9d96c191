package engine

import (
	"context"
	"time"
)

// A sharedCtx gives calls that come one after another a context that ends after
// a timeout at the earliest, and an eighth of it later at the latest: so calls
// that follow each other closely share one. It is used by one goroutine.
type sharedCtx struct {
	ctx    context.Context
	cancel context.CancelFunc
	renew  time.Time
}

// get returns a context for a call that begins now; with no timeout, parent.
func (s *sharedCtx) get(parent context.Context, timeout time.Duration) context.Context {
	if timeout <= 0 {
		return parent
	}
	now := time.Now()
	if now.Before(s.renew) {
		return s.ctx
	}
	s.end()
	s.renew = now.Add(timeout / 8)
	s.ctx, s.cancel = context.WithTimeout(parent, timeout+timeout/8)
	return s.ctx
}

// endingWith returns one that ends with own too. After release it is not used.
func (s *sharedCtx) endingWith(own, parent context.Context, timeout time.Duration) (ctx context.Context, release func()) {
	ctx = s.get(parent, timeout)
	cancel := s.cancel
	if cancel == nil {
		ctx, cancel = context.WithCancel(parent)
	}
	stop := context.AfterFunc(own, cancel)
	return ctx, func() {
		if !stop() || s.cancel == nil { // the next gets another
			cancel()
			s.end()
		}
	}
}

// end frees what the context needs.
func (s *sharedCtx) end() {
	if s.cancel != nil {
		s.cancel()
	}
	*s = sharedCtx{}
}
