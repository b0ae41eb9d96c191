package law

import (
	"context"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A member is a source as laws use it. A Receive may continue for a second after its
// context is done. A test that need not wait leaves such a Receive behind. The next
// Receive of this member then begins with its deliveries.
type member struct {
	backend.Source
	reads *sync.WaitGroup // of all members
	read  chan Received   // of the Receive that was left behind
}

// A Received is the outcome of one Receive, and how long it took.
type Received struct {
	Deliveries []backend.Delivery
	Err        error
	Took       time.Duration
}

// Unwrap leads to the optional verbs of the source.
func (m *member) Unwrap() backend.Source { return m.Source }

// Receive returns the deliveries of the Receive that was left behind, if there are any.
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

// reading returns the Receive that was left behind, or begins one. The caller that gets
// its outcome sets read to nil.
func (m *member) reading(ctx context.Context, max int) <-chan Received {
	if m.read == nil {
		read := make(chan Received, 1)
		m.read = read
		m.reads.Go(func() {
			start := time.Now()
			ds, err := m.Source.Receive(ctx, max)
			read <- Received{ds, err, time.Since(start)}
		})
	}
	return m.read
}
