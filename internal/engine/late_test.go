package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// How long a key waits for its head follows from how late the backend says that
// something due may come.
func TestComeBackFollowsLate(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{0: 2 * time.Second, 5 * time.Second: 6500 * time.Millisecond} {
		d := desk{sub: &Subscription{engine: &Engine{limits: backend.Limits{Late: late}}}}
		require.Equal(t, want, d.comeBack(), "late by %v", late)
	}
}
