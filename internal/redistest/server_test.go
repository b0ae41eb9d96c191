package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/redistest"
)

func TestStartIsFast(t *testing.T) {
	begin := time.Now()
	s := redistest.Start(t)
	t.Logf("Start took %v", time.Since(begin))
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
	require.Less(t, time.Since(begin), 2*time.Second)
}
