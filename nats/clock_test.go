package nats

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock counts the time for which the machine was suspended, and never goes back.
func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	for _, r := range []struct{ mono, wall, want time.Duration }{
		{1 * time.Second, 1 * time.Second, 1 * time.Second},
		{2 * time.Second, 2*time.Second + 400*time.Millisecond, 2 * time.Second}, // read with a pause
		{3 * time.Second, 3 * time.Second, 3 * time.Second},
		{4 * time.Second, 64 * time.Second, 64 * time.Second}, // suspended for a minute
		{5 * time.Second, 65 * time.Second, 65 * time.Second},
		{6 * time.Second, 56 * time.Second, 66 * time.Second}, // set back by ten seconds
		{7 * time.Second, 57 * time.Second, 67 * time.Second},
		{8 * time.Second, 78 * time.Second, 88 * time.Second}, // suspended for twenty seconds
	} {
		require.Equal(t, int64(r.want), c.read(int64(r.mono), int64(r.wall)), "%v", r)
	}
	before := leaseClock.now()
	require.GreaterOrEqual(t, leaseClock.now(), before)
}
