package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A witness stands between a bus and its backend. From the calls alone it knows which
// events of each group the bus holds, and when it acknowledged events.
type witness struct {
	backend.Backend

	mu     sync.Mutex
	groups map[string]*custody
	deaths int  // of the server
	down   bool // the server is down
}

// A custody records the deliveries to one group, by position.
type custody struct {
	held  map[string]bool      // neither acknowledged nor given back
	acked map[string]time.Time // time of the confirmation
	given map[string]time.Time // given back, to be redelivered

	risk     map[string]bool // may be redelivered: held, in flight or just acknowledged when the server died
	onItsWay int             // how many in risk were received only after the server's death
	relapses []string        // redelivered although acknowledged and not at risk
}

func newWitness(b backend.Backend) *witness {
	return &witness{Backend: b, groups: map[string]*custody{}}
}

func (w *witness) Unwrap() backend.Backend { return w.Backend }

func (w *witness) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := w.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &witnessed{Source: src, witness: w, custody: w.of(c.Topic, c.Group)}, nil
}

func (w *witness) of(topic, group string) *custody {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.groups[topic+"/"+group]
	if c == nil {
		c = &custody{held: map[string]bool{}, acked: map[string]time.Time{}, given: map[string]time.Time{}, risk: map[string]bool{}}
		w.groups[topic+"/"+group] = c
	}
	return c
}

// died records that the server was killed.
func (w *witness) died() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaths++
	w.down = true
}

// runs records that the server runs again.
func (w *witness) runs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// life returns the number of the server process that can have sent a delivery received now.
func (w *witness) life() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return w.deaths - 1
	}
	return w.deaths
}

// An exposure counts the events that may be redelivered after a crash.
type exposure struct {
	inFlight int // held or in flight
	recent   int // acknowledged since a moment, and not held again
	returned int // given back since that moment, and not held again
}

func (e exposure) and(o exposure) exposure {
	return exposure{e.inFlight + o.inFlight, e.recent + o.recent, e.returned + o.returned}
}

// forgotten counts a group's events that may be redelivered after the server died. The
// server remembers acknowledgements before since.
func (w *witness) forgotten(topic, group string, since time.Time) exposure {
	c := w.of(topic, group)
	w.mu.Lock()
	defer w.mu.Unlock()
	e := exposure{inFlight: len(c.held)}
	for position := range c.held {
		// A confirmation sent before the server died may still be in flight, or concern a
		// copy sent when the lease expired.
		c.risk[position] = true
	}
	for position, at := range c.acked {
		if !at.Before(since) && !c.held[position] {
			e.recent++
			c.risk[position] = true
		}
	}
	for position, at := range c.given {
		if !at.Before(since) && !c.held[position] {
			e.returned++
		}
	}
	return e
}

// A witnessed source is one member.
type witnessed struct {
	backend.Source
	witness *witness
	custody *custody
}

func (s *witnessed) Unwrap() backend.Source { return s.Source }

func (s *witnessed) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	life := s.witness.life()
	ds, err := s.Source.Receive(ctx, limit, maxBytes)
	s.witness.mu.Lock()
	defer s.witness.mu.Unlock()
	for i := range ds {
		position := ds[i].Position
		s.custody.held[position] = true
		if life < s.witness.deaths && !s.custody.risk[position] {
			// The server may have sent it before it died, and forgotten that.
			s.custody.risk[position] = true
			s.custody.onItsWay++
		}
		if at, done := s.custody.acked[position]; done && !s.custody.risk[position] {
			s.custody.relapses = append(s.custody.relapses, fmt.Sprintf("%s at attempt %d, %v after it was acknowledged",
				position, ds[i].Attempt, time.Since(at)))
		}
	}
	return ds, err
}

func (s *witnessed) Ack(ctx context.Context, ds []*backend.Delivery) error {
	err := s.Source.Ack(ctx, ds)
	s.settled(err, len(ds), s.custody.acked, func(i int) string { return ds[i].Position })
	return err
}

// late counts a group's events that were in flight when the server died.
func (w *witness) late(topic, group string) exposure {
	c := w.of(topic, group)
	w.mu.Lock()
	defer w.mu.Unlock()
	return exposure{inFlight: c.onItsWay}
}

// relapses returns the events redelivered after an acknowledgement that the server must
// have remembered.
func (w *witness) relapses() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, c := range w.groups {
		for _, relapse := range c.relapses {
			all = append(all, name+": "+relapse)
		}
	}
	return all
}

func (s *witnessed) Delay(ctx context.Context, ds []backend.Delayed) error {
	v, _ := backend.As[backend.Delayer](s.Source) // every backend of these tests has it
	err := v.Delay(ctx, ds)
	s.settled(err, len(ds), s.custody.given, func(i int) string { return ds[i].Position })
	return err
}

// settled records the deliveries of a call that err does not concern.
func (s *witnessed) settled(err error, n int, as map[string]time.Time, position func(int) string) {
	s.witness.mu.Lock()
	defer s.witness.mu.Unlock()
	for i := range n {
		if backend.ErrorAt(err, i) == nil {
			delete(s.custody.held, position(i))
			as[position(i)] = time.Now()
		}
	}
}
