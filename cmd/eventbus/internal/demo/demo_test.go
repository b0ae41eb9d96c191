package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/shop"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

const testTopic = "shop.events"

// quiet discards the log of provoked failures.
var quiet = eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}}

func TestTheShopIsAccountedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(eventbustest.On(t, inmemory.New(inmemory.Options{}), quiet), testTopic, NewInput("shop", shop.Events()))
		require.NoError(t, d.Run(t.Context()))
		r := d.Account().Report("shop", time.Second)
		require.NoError(t, r.Err())
		require.Equal(t, 2000, r.Published)
		require.Zero(t, r.Duplicated)
		billing, shipping, audit := r.Groups[0], r.Groups[1], r.Groups[2]
		require.Greater(t, billing.Retried, 100)
		require.Greater(t, shipping.Retried, 100)
		require.Greater(t, billing.DeadLettered, 9, "what cannot be decoded, and refusals")
		require.Greater(t, shipping.DeadLettered, 9, "what cannot be decoded, and what fails every time")
		require.Equal(t, Row{Group: "audit", Published: 2000, Handled: 2000}, audit)

		again := New(eventbustest.On(t, inmemory.New(inmemory.Options{}), quiet), testTopic, NewInput("shop", shop.Events()))
		require.NoError(t, again.Run(t.Context()))
		require.Equal(t, d.Account().Rows(), again.Account().Rows(), "the same each time")
	})
}

// numbered returns an input of n events of 200 keys.
func numbered(n int) *Input {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":"e-%d","key":"k-%d","data":{"order":"o"}}`+"\n", i, i%200)
	}
	return NewInput("test", strings.NewReader(b.String()))
}

// The account reveals the faults of a bad broker.
func TestPlantedFaultsAreCaught(t *testing.T) {
	const events = 3000
	every100th := func(n int) bool { return n%100 == 50 }
	for _, row := range []struct {
		name    string
		publish func(n int, m *backend.Message) []*backend.Message // returns the messages to store for message n
		unorder bool                                               // shipping forgets its order
		check   func(t *testing.T, r Report)
		wrong   string
	}{
		{
			name:  "nothing",
			check: func(t *testing.T, r Report) { require.Zero(t, r.Lost+r.OutOfOrder+r.Duplicated+r.Unknown) },
		},
		{
			name: "loses events", wrong: "lost",
			publish: func(n int, m *backend.Message) []*backend.Message {
				if m.Topic == testTopic && every100th(n) {
					return nil
				}
				return []*backend.Message{m}
			},
			check: func(t *testing.T, r Report) {
				require.GreaterOrEqual(t, r.Lost, 60, "one in a hundred of each of three groups, until nothing moves")
			},
		},
		{
			name: "loses dead letters", wrong: "lost",
			publish: func(_ int, m *backend.Message) []*backend.Message {
				if m.Topic != testTopic {
					return nil
				}
				return []*backend.Message{m}
			},
			check: func(t *testing.T, r Report) {
				require.Positive(t, r.Groups[0].Lost)
				require.Positive(t, r.Groups[1].Lost)
				require.Zero(t, r.Groups[2].Lost)
			},
		},
		{
			name: "stores events twice", // allowed: at least once
			publish: func(n int, m *backend.Message) []*backend.Message {
				if m.Topic == testTopic && every100th(n) {
					twin := *m
					return []*backend.Message{m, &twin}
				}
				return []*backend.Message{m}
			},
			check: func(t *testing.T, r Report) {
				require.GreaterOrEqual(t, r.Duplicated, 80, "about 30 in each of three groups")
				require.Zero(t, r.Lost)
			},
		},
		{
			name: "stores events in the wrong order", wrong: "out of order",
			publish: swapper(),
			check: func(t *testing.T, r Report) {
				require.GreaterOrEqual(t, r.OutOfOrder, 25, "about 10 in each of three groups")
			},
		},
		{
			name: "hands out what nobody published", wrong: "never published",
			publish: func(n int, m *backend.Message) []*backend.Message {
				if m.Topic == testTopic && n == 1000 {
					phantom := *m
					phantom.Headers = backend.Headers{{Name: numberHeader, Value: "9999"}}
					return []*backend.Message{m, &phantom}
				}
				return []*backend.Message{m}
			},
			check: func(t *testing.T, r Report) { require.GreaterOrEqual(t, r.Unknown, 3) },
		},
		{
			name: "does not wait for retries", wrong: "out of order", unorder: true,
			check: func(t *testing.T, r Report) {
				require.Positive(t, r.Groups[1].OutOfOrder)
				require.Zero(t, r.Groups[0].OutOfOrder)
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &badBroker{Backend: inmemory.New(inmemory.Options{}), instead: row.publish}
				d := New(eventbustest.On(t, b, quiet), testTopic, numbered(events))
				if row.unorder {
					d.groups[1].options.Order = eventbus.Unordered
				}
				require.NoError(t, d.Run(t.Context()))
				r := d.Account().Report("test", time.Second)
				row.check(t, r)
				if row.wrong == "" {
					require.NoError(t, r.Err())
				} else {
					require.ErrorContains(t, r.Err(), row.wrong)
				}
			})
		})
	}
}

// swapper swaps each hundredth event with the next event of its key.
func swapper() func(int, *backend.Message) []*backend.Message {
	var kept *backend.Message
	return func(n int, m *backend.Message) []*backend.Message {
		switch {
		case m.Topic == testTopic && kept == nil && n%100 == 50:
			kept = new(backend.Message)
			*kept = *m
			kept.Headers, kept.Payload = append(backend.Headers(nil), m.Headers...), append([]byte(nil), m.Payload...)
			return nil
		case kept != nil && m.Key == kept.Key && m.Topic == testTopic:
			first := kept
			kept = nil
			return []*backend.Message{m, first}
		}
		return []*backend.Message{m}
	}
}

// A badBroker does not store the messages that it confirms.
type badBroker struct {
	backend.Backend
	instead func(n int, m *backend.Message) []*backend.Message

	mu sync.Mutex // two calls may run at once
	n  int
}

func (b *badBroker) Unwrap() backend.Backend { return b.Backend }

func (b *badBroker) Publish(ctx context.Context, msgs []*backend.Message) error {
	if b.instead == nil {
		return b.Backend.Publish(ctx, msgs)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var stored []*backend.Message
	for _, m := range msgs {
		stored = append(stored, b.instead(b.n, m)...)
		if m.Topic == testTopic {
			b.n++
		}
	}
	return b.Backend.Publish(ctx, stored)
}

// An event that its publisher would let expire or discard is handled like any other.
func TestTTLAndRetryOfTheInputAreDropped(t *testing.T) {
	for name, line := range map[string]string{
		"ttl":   `{"time":"1999-12-31T00:00:00Z","ttl":"1h","data":{"order":"o"}}` + "\n", // before synctest's time
		"retry": strings.Repeat(`{"key":"k","retry":{"attempts":1,"discard":true},"data":{"order":"o"}}`+"\n", 100),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := New(eventbustest.On(t, inmemory.New(inmemory.Options{}), quiet), testTopic, NewInput("test", strings.NewReader(line)))
				require.NoError(t, d.Run(t.Context()))
				require.NoError(t, d.Account().Report("test", 0).Err())
			})
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		endless, w := io.Pipe()
		go fmt.Fprintln(w, `{"id":"1"}`)
		context.AfterFunc(ctx, func() {
			time.Sleep(time.Millisecond) // an input that ends at the same moment as ctx may be its end
			w.Close()
		})
		d := New(eventbustest.On(t, inmemory.New(inmemory.Options{}), quiet), testTopic, NewInput("test", endless))
		start := time.Now()
		require.ErrorIs(t, d.Run(ctx), context.DeadlineExceeded)
		require.Less(t, time.Since(start), 2*time.Second)
	})
}

func TestRunReturnsWhatIsWrongWithTheInput(t *testing.T) {
	for _, row := range []struct{ name, line, want string }{
		{"the line", `what`, "test:300: not an event"},
		{"the event", `{"key":"a\u0000"}`, "test:300: Key has a control character"},
		{"its headers", `{"headers":{"ce-id":"1"}}`, "test:300: Headers[ce-id] is reserved"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := strings.Repeat("{}\n", 299) + row.line + "\n" + strings.Repeat("{}\n", 300)
				d := New(eventbustest.On(t, inmemory.New(inmemory.Options{}), quiet), testTopic, NewInput("test", strings.NewReader(text)))
				require.ErrorContains(t, d.Run(t.Context()), row.want)
			})
		})
	}
}

func TestRunReturnsWhatTheBackendRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(eventbustest.On(t, inmemory.New(inmemory.Options{MaxMessages: 100}), quiet), testTopic, numbered(300))
		err := d.Run(t.Context())
		require.ErrorIs(t, err, eventbus.ErrFull)
		require.ErrorContains(t, err, "test:101: ")
	})
}

func TestRunReturnsWhyItCannotStart(t *testing.T) {
	bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
	require.NoError(t, bus.Shutdown(t.Context()))
	require.ErrorIs(t, New(bus, testTopic, numbered(1)).Run(t.Context()), eventbus.ErrClosed)
}

func TestWindowShrinksWithTheLargestEvent(t *testing.T) {
	var w window
	require.Equal(t, windowEvents, w.events())
	w.saw(100)
	require.Equal(t, windowEvents, w.events())
	w.saw(1 << 20)
	w.saw(1)
	require.Equal(t, 32, w.events())
}

func TestTroubleIsTheShareItSays(t *testing.T) {
	tr := trouble{salt: 3, once: 100, twice: 50, always: 10, refused: 5}
	var failures [maxAttempts + 1]int
	const n = 100_000
	for i := range n {
		for run := 1; run <= maxAttempts && tr.of(i, run) != nil; run++ {
			failures[run]++
		}
	}
	require.InDelta(t, 0.165, float64(failures[1])/n, 0.005)
	require.InDelta(t, 0.065, float64(failures[2])/n, 0.005)
	require.InDelta(t, 0.015, float64(failures[maxAttempts])/n, 0.002)
}
