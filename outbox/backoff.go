package outbox

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// newBackOff returns the delays after repeated failures: from about 100 ms up to mostDelay, without
// an end.
func newBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(mostDelay*2/3), // to which jitter adds up to half
		backoff.WithMaxElapsedTime(0))
}

const (
	mostDelay  = 30 * time.Second
	mostHolds  = 200  // of keys and rows; beyond it, whole topics are held
	mostScopes = 1000 // of topics, keys and rows; beyond it, the relay reads nothing until one is due
)

// A scope is the set of rows that a hold applies to: all rows of a topic, those of a key in it, or
// one row without a key.
type scope struct {
	topic, key string
	number     int64
}

func scopeOf(r *row) scope {
	if len(r.key) > 0 {
		return scope{topic: r.topic, key: string(r.key)}
	}
	return scope{topic: r.topic, number: r.number}
}

// holds tracks the rows that are not read for now, because their last Publish failed.
type holds struct {
	all  map[scope]*hold
	fine int // how many holds are of keys and rows
}

type hold struct {
	until  time.Time
	delays backoff.BackOff
}

// fail holds p for its next delay, and returns the delay. If too many keys and rows are held, it
// holds the topic of p instead.
func (h *holds) fail(p scope, now time.Time) time.Duration {
	if h.all == nil {
		h.all = map[scope]*hold{}
	}
	held := h.all[p]
	if held == nil && p.isFine() && h.fine >= mostHolds {
		p = scope{topic: p.topic}
		held = h.all[p]
	}
	if held == nil {
		held = &hold{delays: newBackOff()}
		h.all[p] = held
		if p.isFine() {
			h.fine++
		}
	}
	delay := held.delays.NextBackOff()
	held.until = now.Add(delay)
	return delay
}

func (p scope) isFine() bool { return p.key != "" || p.number != 0 }

func (h *holds) drop(p scope) {
	if _, ok := h.all[p]; ok {
		delete(h.all, p)
		if p.isFine() {
			h.fine--
		}
	}
}

// active returns the scopes that are currently held. It forgets holds that expired long ago, whose
// rows are gone.
func (h *holds) active(now time.Time) (scopes []scope) {
	for p, held := range h.all {
		switch {
		case held.until.After(now):
			scopes = append(scopes, p)
		case now.Sub(held.until) > 4*mostDelay:
			h.drop(p)
		}
	}
	return scopes
}

// record holds the scopes whose rows s could not publish, releases those whose rows were published,
// and returns the shortest delay.
func (h *holds) record(s *sending, now time.Time) time.Duration {
	if s.wide {
		return h.fail(scope{topic: s.topic}, now)
	}
	least := mostDelay
	if s.gaveUp {
		least = h.fail(scope{topic: s.topic}, now)
	} else {
		h.clear(s)
	}
	failed := map[scope]bool{}
	for _, r := range s.failed {
		if p := scopeOf(r); !failed[p] {
			failed[p] = true
			least = min(least, h.fail(p, now))
		}
	}
	return least
}

// clear releases the expired holds whose rows s has read, except for scopes that failed again.
func (h *holds) clear(s *sending) {
	h.drop(scope{topic: s.topic})
	if h.fine == 0 {
		return
	}
	failed := map[scope]bool{}
	for _, r := range s.failed {
		failed[scopeOf(r)] = true
	}
	for _, r := range s.rows {
		if p := scopeOf(r); !failed[p] {
			h.drop(p)
		}
	}
}
