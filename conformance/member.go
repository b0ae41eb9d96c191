package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A member is a source of the suite. A Receive may go on for a second after its
// context is done; a test that need not wait for it leaves it behind, and the
// next Receive of this member begins with what it brings.
type member struct {
	backend.Source
	reads *sync.WaitGroup // of all members
	read  chan received   // of the Receive that was left behind
}

// A received is the outcome of one Receive, and how long it took.
type received struct {
	Deliveries []backend.Delivery
	Err        error
	Took       time.Duration
}

func (m *member) Unwrap() backend.Source { return m.Source }

// Receive returns what the one that was left behind has brought, if anything.
func (m *member) Receive(ctx context.Context, max int) ([]backend.Delivery, error) {
	if m.read != nil {
		r := <-m.read
		m.read = nil
		if len(r.Deliveries) > 0 {
			return r.Deliveries, nil
		}
	}
	return m.Source.Receive(ctx, max)
}

// reading returns the Receive that was left behind, or begins one. Whoever gets
// its outcome sets read to nil.
func (m *member) reading(ctx context.Context, max int) <-chan received {
	if m.read == nil {
		read := make(chan received, 1)
		m.read = read
		m.reads.Go(func() {
			start := time.Now()
			ds, err := m.Source.Receive(ctx, max)
			read <- received{ds, err, time.Since(start)}
		})
	}
	return m.read
}
