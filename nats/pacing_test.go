package nats

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Calls of Delay without a pause get one turn in 200 ms, after the first few. After a second
// of silence there are a few quick turns again.
func TestPace(t *testing.T) {
	t.Parallel()
	var p delayRate
	began := time.Now()
	turns := func(n int, now time.Time) (all []time.Duration) {
		for range n {
			var turn time.Time
			turn, p = p.next(now)
			all = append(all, turn.Sub(began).Round(time.Millisecond)/time.Millisecond)
		}
		return all
	}
	require.Equal(t, []time.Duration{0, 15, 30, 45, 60, 200, 400, 600}, turns(8, began))
	require.Equal(t, []time.Duration{3000, 3015, 3030, 3045, 3060, 3200}, turns(6, began.Add(3*time.Second)))
}
