package engine

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/observer"
)

// After concurrent calls of Pause and Resume, the state is right.
func TestPauseAndResumeRaceLeavesTheStateRight(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		for range 3000 {
			var wg sync.WaitGroup
			wg.Go(s.Pause)
			wg.Go(s.Resume)
			wg.Wait()
			s.consumers.mu.Lock()
			paused := !isClosed(s.consumers.resumed)
			s.consumers.mu.Unlock()
			state, _ := s.State()
			require.Equal(r, paused, state == observer.Paused)
		}
		s.Resume()
	})
}
