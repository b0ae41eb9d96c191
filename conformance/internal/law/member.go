package law

import (
	"context"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A member wraps a source for [steps.Nothing]. Receive may take up to a second to return
// after its context is done. Nothing does not wait for such a late Receive. The next
// Receive of the member returns the deliveries of the late one.
type member struct {
	backend.Source
	reads *sync.WaitGroup // counts the late Receives of all members
	read  chan Received   // gets the outcome of the late Receive; nil if no Receive is late
}

// A Received is the outcome of one Receive, and how long it took.
type Received struct {
	Deliveries []backend.Delivery
	Err        error
	Took       time.Duration
}

// Unwrap returns the source, so that [backend.As] finds its optional verbs.
func (m *member) Unwrap() backend.Source { return m.Source }

// Receive returns the deliveries of a late Receive, if there are any, or calls the source.
func (m *member) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	if m.read != nil {
		r := <-m.read
		m.read = nil
		if len(r.Deliveries) > 0 {
			return r.Deliveries, nil
		}
	}
	return m.Source.Receive(ctx, max, maxBytes)
}

// reading returns the channel that gets the outcome of the late Receive. If none is late,
// it begins a Receive on the source. The caller that takes the outcome sets m.read to nil.
func (m *member) reading(ctx context.Context, max int) <-chan Received {
	if m.read == nil {
		read := make(chan Received, 1)
		m.read = read
		m.reads.Go(func() {
			start := time.Now()
			ds, err := m.Source.Receive(ctx, max, 0)
			read <- Received{ds, err, time.Since(start)}
		})
	}
	return m.read
}
