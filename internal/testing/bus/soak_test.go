package bus_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/testproc"
)

// TestSoak passes EVENTBUS_SOAK events through one subscription, with few Receives and with
// one for each event. The heap stays flat, and no goroutine is left.
func TestSoak(t *testing.T) {
	text := os.Getenv("EVENTBUS_SOAK")
	if text == "" {
		t.Skip("set EVENTBUS_SOAK to a number of events")
	}
	events, err := strconv.Atoi(text)
	require.NoError(t, err)
	t.Run("many in flight", func(t *testing.T) { soak(t, events, 1000) })
	t.Run("one in flight", func(t *testing.T) { soak(t, events, 1) })
}

func soak(t *testing.T, events, inFlight int) {
	goroutines := runtime.NumGoroutine()
	bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
	var handled, failed atomic.Int64
	_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{
		Group: "g", Concurrency: min(4, inFlight), MaxInFlight: inFlight, Retry: eventbus.Retry{Initial: time.Millisecond},
	}, func(_ context.Context, d *eventbus.Delivery) error {
		if d.Attempt == 1 && len(d.Payload)%100 == 0 {
			failed.Add(1)
			return fmt.Errorf("one in a hundred fails at first")
		}
		handled.Add(1)
		return nil
	})
	require.NoError(t, err)

	const parts = 10
	var heap [parts]int
	published := 0
	for part := range parts {
		for until := events * (part + 1) / parts; published < until; {
			batch := make([]*eventbus.Event, min(100, until-published))
			for i := range batch {
				batch[i] = &eventbus.Event{Key: strconv.Itoa(published % 1000), Payload: make([]byte, 200+published%200)}
				published++
			}
			require.NoError(t, bus.Publish(t.Context(), "t", batch...))
			for int64(published)-handled.Load() > 10_000 {
				runtime.Gosched()
			}
		}
		for handled.Load() < int64(published) {
			time.Sleep(time.Millisecond)
		}
		heap[part] = testproc.HeapInUse()
	}
	require.NoError(t, bus.Shutdown(t.Context()))
	t.Logf("%d events, %d failed at first; heap in MiB after each tenth:%s", published, failed.Load(), mebibytes(heap[:]))
	require.Positive(t, failed.Load())
	require.Less(t, heap[parts-1], heap[0]+heap[0]/2+4<<20, "the heap grows")
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines; {
		require.True(t, time.Now().Before(deadline), "goroutines are left: %d, want %d", runtime.NumGoroutine(), goroutines)
		time.Sleep(time.Millisecond)
	}
}

func mebibytes(bytes []int) (text string) {
	for _, b := range bytes {
		text += fmt.Sprintf(" %.1f", float64(b)/(1<<20))
	}
	return text
}
