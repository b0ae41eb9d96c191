package nats_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// In a cluster nobody answers for a stream that has no leader yet, because another
// publisher created it a moment ago. The first publishers of a topic may create its stream
// together, each with another first sequence number: one of them learns that the name is in
// use before the stream can be inspected.
func TestFirstPublishesTogether(t *testing.T) {
	t.Parallel()
	r := new(rig)
	b := r.open(t, clustered(), clusterOf(natstest.StartCluster(t)))
	var wg sync.WaitGroup
	for topic := range 20 {
		for range 4 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err := backend.ErrUnavailable
				for errors.Is(err, backend.ErrUnavailable) && ctx.Err() == nil { // as the bus does
					err = b.Publish(ctx, []*backend.Message{{Topic: fmt.Sprint("topic-", topic)}})
				}
				assert.NoError(t, err)
			})
		}
		wg.Wait()
	}
}
