package outbox

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// newBackOff returns the delays after failures that repeat, from about 100 ms to mostDelay at
// most, without an end.
func newBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(mostDelay*2/3), // and half of it more by chance
		backoff.WithMaxElapsedTime(0))
}

const (
	mostDelay = 30 * time.Second
	mostHolds = 200  // of keys and rows; then whole topics are held
	mostAtAll = 1000 // of topics, keys and rows; then the relay reads nothing until one is due
)

// A place says which rows a hold concerns: all rows of a topic, the rows of a key in it, or
// one row without a key.
type place struct {
	topic, key string
	number     int64
}

func placeOf(r *row) place {
	if len(r.key) > 0 {
		return place{topic: r.topic, key: string(r.key)}
	}
	return place{topic: r.topic, number: r.number}
}

// holds are the rows that are not read at present, because their last Publish has failed.
type holds struct {
	all  map[place]*hold
	fine int // the holds of keys and rows
}

type hold struct {
	until  time.Time
	delays backoff.BackOff
}

// fail holds p until the next delay of p has passed, and returns the delay. If too many keys
// and rows are held, it holds the topic of p instead.
func (h *holds) fail(p place, now time.Time) time.Duration {
	if h.all == nil {
		h.all = map[place]*hold{}
	}
	held := h.all[p]
	if held == nil && p.isFine() && h.fine >= mostHolds {
		p = place{topic: p.topic}
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

func (p place) isFine() bool { return p.key != "" || p.number != 0 }

func (h *holds) drop(p place) {
	if _, ok := h.all[p]; ok {
		delete(h.all, p)
		if p.isFine() {
			h.fine--
		}
	}
}

// active returns the places that are held now. It forgets a hold that was over for long,
// because its rows are gone.
func (h *holds) active(now time.Time) (places []place) {
	for p, held := range h.all {
		switch {
		case held.until.After(now):
			places = append(places, p)
		case now.Sub(held.until) > 4*mostDelay:
			h.drop(p)
		}
	}
	return places
}

// note holds the places whose rows a sending could not publish, and returns the shortest
// delay. A place whose rows were published is held no longer.
func (h *holds) note(s *sending, now time.Time) time.Duration {
	if s.wide {
		return h.fail(place{topic: s.topic}, now)
	}
	least := mostDelay
	if s.gaveUp {
		least = h.fail(place{topic: s.topic}, now)
	} else {
		h.clear(s)
	}
	failed := map[place]bool{}
	for _, r := range s.failed {
		if p := placeOf(r); !failed[p] {
			failed[p] = true
			least = min(least, h.fail(p, now))
		}
	}
	return least
}

// clear forgets the holds that were over when the rows of s were read, except for the places
// that have failed again.
func (h *holds) clear(s *sending) {
	h.drop(place{topic: s.topic})
	if h.fine == 0 {
		return
	}
	failed := map[place]bool{}
	for _, r := range s.failed {
		failed[placeOf(r)] = true
	}
	for _, r := range s.rows {
		if p := placeOf(r); !failed[p] {
			h.drop(p)
		}
	}
}
