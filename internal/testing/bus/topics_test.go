package bus_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

func TestManyTopicsSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
		require.NoError(t, err)
		const n = 1000
		for i := range n {
			require.NoError(t, bus.Publish(t.Context(), fmt.Sprintf("orders.%d", i), &eventbus.Event{}))
		}
		got := map[string]int{}
		start := time.Now()
		var last time.Duration
		s, err := bus.Subscribe(t.Context(), "orders.*", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
			got[d.Topic]++
			last = time.Since(start)
			return nil
		})
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Len(t, s.Topics(), n)
		require.Len(t, got, n)
		t.Log(last)
		for i := range 5 {
			start = time.Now()
			require.NoError(t, bus.Publish(t.Context(), "orders.7", &eventbus.Event{}))
			time.Sleep(3 * time.Second)
			synctest.Wait()
			require.Equal(t, 2+i, got["orders.7"])
			t.Log(last)
		}
		start = time.Now()
		require.NoError(t, bus.Publish(t.Context(), "orders.new", &eventbus.Event{}))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, got["orders.new"])
		t.Log(last)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}
