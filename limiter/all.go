package limiter

import "context"

// All returns a limiter that grants a place if each of limiters grants one. It asks
// limiters in the given order. While it waits for one of them, it keeps places of the
// limiters before it. So subscriptions that share limiters must pass them to All in the
// same order, or they may deadlock. A Breaker belongs last: if it opens while another limiter
// waits, no read begins. All panics if there is no limiter, or if one is nil.
func All(limiters ...Limiter) Limiter {
	if len(limiters) == 0 {
		panic("limiter: All needs a limiter")
	}
	for _, l := range limiters {
		if l == nil {
			panic("limiter: All needs limiters that are not nil")
		}
	}
	return all(append([]Limiter(nil), limiters...))
}

type all []Limiter

var _ Limiter = all(nil)

func (a all) Acquire(ctx context.Context, max int) (int, error) {
	granted := max
	for i, l := range a {
		n, err := l.Acquire(ctx, granted)
		if n < granted {
			a[:i].Release(Released{Unused: granted - n})
		}
		if n == 0 {
			return 0, err
		}
		granted = n
	}
	return granted, nil
}

func (a all) Fill(n int, bytes int64) {
	for _, l := range a {
		l.Fill(n, bytes)
	}
}

func (a all) Release(r Released) {
	for _, l := range a {
		l.Release(r)
	}
}
