package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
)

// A Subscribe that meets a Shutdown is refused or drained, and nothing of it is
// left. (What this finds, the race detector finds.)
func TestSubscribeMeetsShutdown(t *testing.T) {
	for range 300 {
		e := New(inmemory.New(inmemory.Options{}), Options{})
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				s, err := e.Subscribe(t.Context(), Config{
					Topic: "t", Group: "g", Concurrency: 1, MaxInFlight: 1, Lease: time.Second,
					Limiter: limiter.MaxInFlight(1),
					Policy:  Policy{Backoff: func(int) time.Duration { return 0 }},
					Handle:  func(context.Context, *Hold) error { return nil },
				})
				if err != nil {
					require.ErrorIs(t, err, backend.ErrClosed)
					return
				}
				<-s.Done()
			})
		}
		_, err := e.Shutdown(t.Context())
		require.NoError(t, err)
		both.Wait()
	}
}
