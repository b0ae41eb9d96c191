package limiter

import (
	"context"
	"slices"
)

// All returns a limiter that grants a slot if each of limiters grants one. It asks them in the
// given order, and while it waits for one of them it keeps slots of those before it. Subscriptions
// that share limiters must therefore pass them to All in the same order, or they may deadlock. Put
// a Breaker last: if it opens while another limiter waits, no read starts. All panics if there is
// no limiter, or if one is nil.
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

func (a all) Acquire(ctx context.Context, max int) (Grant, error) {
	all := Grant{Messages: max}
	for i, l := range a {
		g, err := l.Acquire(ctx, all.Messages)
		if g.Messages == 0 {
			a[:i].Fill(all, 0, 0)
			return Grant{}, err
		}
		least := all.and(g)
		a[:i].endRest(all, least)
		a[i:i+1].endRest(g, least)
		all = least
	}
	return all, nil
}

// endRest ends the part of the grant g that is not in least.
func (a all) endRest(g, least Grant) {
	rest := Grant{Messages: g.Messages - least.Messages, Bytes: max(g.Bytes-least.Bytes, 0)}
	if rest != (Grant{}) {
		a.Fill(rest, 0, 0)
	}
}

// and returns the lesser of each limit of g and h.
func (g Grant) and(h Grant) Grant {
	bytes := min(g.Bytes, h.Bytes)
	if g.Bytes == 0 || h.Bytes == 0 {
		bytes = g.Bytes + h.Bytes
	}
	return Grant{Messages: min(g.Messages, h.Messages), Bytes: bytes}
}

func (a all) Fill(g Grant, n int, bytes int64) {
	for _, l := range a {
		l.Fill(g, n, bytes)
	}
}

// Release releases the last limiter first, so that no slot is free before a Breaker has counted the
// failed runs, and no read that waits for a slot starts after they have opened it.
func (a all) Release(r Released) {
	for _, l := range slices.Backward(a) {
		l.Release(r)
	}
}
