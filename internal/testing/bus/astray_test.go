package bus_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// Members with partitions tell of events that a program without them has published, once, and
// again after an hour.
func TestEventsOutsidePartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		var mu sync.Mutex
		var told []string
		bus, err := eventbus.New(lent{mem}, eventbus.Options{
			Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 2}},
			Observer: observer.Observer{Noticed: func(n observer.Noticed) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, n.Topic+"/"+n.Group+": "+n.Text)
			}},
		})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"}, succeed)
		require.NoError(t, err)
		tells := func(after time.Duration, n int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, told, n)
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Key: "ada"}))
		tells(time.Minute, 0)

		plain, err := eventbus.New(lent{mem}, eventbus.Options{})
		require.NoError(t, err)
		require.NoError(t, plain.Publish(t.Context(), "orders", &eventbus.Event{Key: "ada"}))
		tells(11*time.Second, 1)
		require.Contains(t, told[0], "orders/billing: the topic has events outside its partitions")
		tells(50*time.Minute, 1)
		tells(11*time.Minute, 2)
		require.NoError(t, plain.Shutdown(t.Context()))
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
	})
}
