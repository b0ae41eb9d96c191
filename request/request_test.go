package request_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/request"
)

// newBus returns a bus whose requests in "prices" are handled by h.
func newBus(t *testing.T, h func(context.Context, *eventbus.Delivery) (*eventbus.Event, error)) *eventbus.Bus {
	t.Helper()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
	require.NoError(t, err)
	_, err = bus.Subscribe(t.Context(), "prices", eventbus.SubscribeOptions{Group: "prices", Concurrency: 16, Retry: eventbus.Retry{MaxAttempts: 3, Initial: 100 * time.Millisecond}}, request.Handler(bus, h))
	require.NoError(t, err)
	return bus
}

func newClient(t *testing.T, bus request.Bus) *request.Client {
	t.Helper()
	c, err := request.New(t.Context(), bus, "shop.replies", request.Options{})
	require.NoError(t, err)
	return c
}

func end(t *testing.T, bus *eventbus.Bus) {
	t.Helper()
	require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
}

func echo(_ context.Context, d *eventbus.Delivery) (*eventbus.Event, error) {
	return &eventbus.Event{Payload: []byte("price of " + string(d.Payload))}, nil
}

// Many calls of several clients each get the reply to their own request.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t, echo)
		var wg sync.WaitGroup
		for i := range 4 {
			c := newClient(t, bus)
			for j := range 50 {
				wg.Go(func() {
					e := &eventbus.Event{ID: "the same", Payload: fmt.Appendf(nil, "%d-%d", i, j)}
					r, err := c.Do(t.Context(), "prices", e)
					if err != nil || string(r.Payload) != fmt.Sprintf("price of %d-%d", i, j) {
						t.Errorf("call %d of client %d: got %v, %v", j, i, r, err)
					}
					if len(e.Headers) > 0 || !e.Time.IsZero() {
						t.Errorf("Do has changed its event: %+v", e)
					}
				})
			}
		}
		wg.Wait()
		end(t, bus)
	})
}

// A call without a reply ends with its context, a late reply is counted, and no handler gets the
// request after the deadline.
func TestLateReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled int
		var until time.Time
		bus := newBus(t, func(ctx context.Context, d *eventbus.Delivery) (*eventbus.Event, error) {
			handled++
			until, _ = ctx.Deadline()
			time.Sleep(3 * time.Second)
			return &eventbus.Event{}, nil
		})
		c := newClient(t, bus)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		deadline, _ := ctx.Deadline()
		_, err := c.Do(ctx, "prices", &eventbus.Event{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, c.Late())
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 1, c.Late())
		require.Equal(t, 1, handled)
		require.True(t, deadline.Equal(until), "the handler has the deadline of the caller: %v, %v", deadline, until)
		end(t, bus)
	})
}

// While nothing handles requests they expire with their callers.
func TestExpiredRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
		require.NoError(t, err)
		c := newClient(t, bus)
		began := time.Now()
		_, err = c.Do(t.Context(), "prices", &eventbus.Event{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(began), "the default of Options.Timeout")
		time.Sleep(time.Millisecond)
		_, err = bus.Subscribe(t.Context(), "prices", eventbus.SubscribeOptions{Group: "prices"}, func(context.Context, *eventbus.Delivery) error {
			t.Error("an expired request is handled")
			return nil
		})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		end(t, bus)
	})
}

// A caller learns that its request was refused, or has failed for good. Other failures are retried.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := map[string]int{}
		bus := newBus(t, func(_ context.Context, d *eventbus.Delivery) (*eventbus.Event, error) {
			attempts[d.Type]++
			switch {
			case d.Type == "refused":
				return nil, request.Refuse(errors.New("no such\narticle" + strings.Repeat(".", 1000)))
			case d.Type == "broken", attempts[d.Type] < 2:
				return nil, errors.New("broken")
			}
			return nil, nil
		})
		c := newClient(t, bus)
		do := func(typ string) error {
			_, err := c.Do(t.Context(), "prices", &eventbus.Event{Type: typ})
			return err
		}
		var failure *request.Error
		require.ErrorAs(t, do("refused"), &failure)
		require.Equal(t, "prices", failure.Topic)
		require.Len(t, failure.Text, 512)
		require.True(t, strings.HasPrefix(failure.Text, "no such\narticle"))
		require.ErrorAs(t, do("broken"), &failure)
		require.Equal(t, "broken", failure.Text)
		require.NoError(t, do("passing"))
		require.Equal(t, map[string]int{"refused": 1, "broken": 3, "passing": 2}, attempts)
		require.Zero(t, c.Late())
		end(t, bus)
	})
}

// A second reply to a request is dropped and counted.
func TestSecondReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "prices", eventbus.SubscribeOptions{Group: "prices"}, func(ctx context.Context, d *eventbus.Delivery) error {
			first := request.Reply(ctx, bus, d, &eventbus.Event{Payload: []byte("1")})
			return errors.Join(first, request.Reply(ctx, bus, d, &eventbus.Event{Payload: []byte("2")}))
		})
		require.NoError(t, err)
		c := newClient(t, bus)
		r, err := c.Do(t.Context(), "prices", &eventbus.Event{})
		require.NoError(t, err)
		require.Equal(t, "1", string(r.Payload))
		time.Sleep(time.Second)
		require.EqualValues(t, 1, c.Late())
		end(t, bus)
	})
}

// A caller does not wait for a bus that is shut down.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
		require.NoError(t, err)
		c := newClient(t, bus)
		time.AfterFunc(time.Second, func() { require.NoError(t, c.Close(context.WithoutCancel(t.Context()))) })
		_, err = c.Do(t.Context(), "prices", &eventbus.Event{})
		require.ErrorIs(t, err, eventbus.ErrClosed)
		end(t, bus)
	})
}

// Replies go to topics for replies only, so that no request can make a handler publish elsewhere.
func TestReplyTopics(t *testing.T) {
	bus := newBus(t, echo)
	defer end(t, bus)
	for _, topic := range []string{"orders", "", "replies.of.shop"} {
		_, err := request.New(t.Context(), bus, topic, request.Options{})
		require.ErrorContains(t, err, "replies", topic)
		d := &eventbus.Delivery{Event: eventbus.Event{Headers: eventbus.Headers{{Name: request.ReplyTo, Value: topic}, {Name: request.Correlation, Value: "x"}}}}
		require.ErrorIs(t, request.Reply(t.Context(), bus, d, &eventbus.Event{}), request.ErrNoRequest, topic)
	}
}
