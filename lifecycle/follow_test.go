package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/observer"
)

// Another process follows the records, of topics that do not exist yet too.
func TestFollow(t *testing.T) {
	onEach(t, func(t *testing.T, b backend.Backend) {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		seen := make(chan string, 100)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for r, err := range lifecycle.Follow(ctx, b, "orders", "refunds") {
				if err != nil {
					seen <- err.Error()
					return
				}
				seen <- r.Topic + " " + line(r)
				if r.ID == "last" {
					return
				}
			}
		}()
		bus, _, stop := watched(t, b, lifecycle.Options{})
		for _, topic := range []string{"orders", "refunds"} {
			_, err := bus.Subscribe(t.Context(), topic, options, func(context.Context, *eventbus.Delivery) error { return nil })
			require.NoError(t, err)
		}
		for _, step := range [][2]string{{"orders", "1"}, {"refunds", "2"}, {"orders", "3"}} {
			require.NoError(t, bus.Publish(ctx, step[0], &eventbus.Event{ID: step[1]}))
			require.Equal(t, step[0]+" active "+step[1]+" #1 ", <-seen)
			require.Equal(t, step[0]+" completed "+step[1]+" #1 ", <-seen)
		}
		require.NoError(t, bus.Publish(ctx, "orders", &eventbus.Event{ID: "last"}))
		<-done
		stop()
	})
}

// Follow sees a new record within a second, although it asks seldom. It ends with its ctx,
// without an error.
func TestFollowLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counting{lasting: lasting{inmemory.New(inmemory.Options{})}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := lifecycle.New(lifecycle.Options{})
		require.NoError(t, r.Start(t.Context(), b.lasting))
		time.AfterFunc(30*time.Minute, func() {
			r.Observer().Started(observer.Started{About: observer.About{Topic: "orders", ID: "1"}})
		})
		var delays []time.Duration
		for rec, err := range lifecycle.Follow(ctx, b, "orders") {
			require.NoError(t, err)
			delays = append(delays, time.Since(rec.Time))
		}
		require.Len(t, delays, 1)
		require.LessOrEqual(t, delays[0], time.Second)
		require.Less(t, b.reads, 3700)
		require.NoError(t, r.Close(t.Context()))
	})
}

// After an error Follow continues at the same place. Events that are not records are left out,
// and a damaged record is an error.
func TestFollowAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counting{lasting: lasting{inmemory.New(inmemory.Options{})}, fails: 2}
		r := lifecycle.New(lifecycle.Options{})
		require.NoError(t, r.Start(t.Context(), b.lasting))
		tell(r.Observer(), "orders", 1)
		synctest.Wait()
		for _, e := range []*eventbus.Event{{ID: "foreign"}, {ID: "damaged", Type: lifecycle.Type, Payload: []byte("{")}} {
			m, err := eventbus.MessageOf("orders.lifecycle", e)
			require.NoError(t, err)
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		}
		tell(r.Observer(), "orders", 2)
		require.NoError(t, r.Close(t.Context()))
		var got []string
		for rec, err := range lifecycle.Follow(t.Context(), b, "orders") {
			if err != nil {
				require.Zero(t, rec)
				got = append(got, err.Error())
			} else {
				got = append(got, line(rec))
			}
			if len(got) == 6 {
				break
			}
		}
		require.Equal(t, []string{
			"lifecycle: follow orders: broken", "lifecycle: follow orders: broken", "active 0 #1 ",
			"lifecycle: the record at 0000000000000003 of orders.lifecycle: unexpected end of JSON input",
			"active 0 #1 ", "active 1 #1 ",
		}, got)
	})
}

// A counting is a backend that counts reads, of which the first fail.
type counting struct {
	lasting
	reads, fails int
}

func (c *counting) Read(ctx context.Context, topic string, from backend.Start, n int) ([]backend.Message, error) {
	if c.reads++; c.reads <= c.fails {
		return nil, errBroken
	}
	return backend.Read(ctx, c.Backend, topic, from, n)
}
