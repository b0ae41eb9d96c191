package bus_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A refusing is a backend that fails calls of one topic.
type refusing struct {
	backend.Backend
	topic  string
	verb   string
	broken atomic.Bool
}

func (r *refusing) Unwrap() backend.Backend { return r.Backend }

func (r *refusing) fails(topic, verb string) error {
	if r.broken.Load() && topic == r.topic && verb == r.verb {
		return backend.ErrDenied
	}
	return nil
}

func (r *refusing) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	if err := r.fails(c.Topic, "attach"); err != nil {
		return nil, err
	}
	src, err := r.Backend.Attach(ctx, c)
	return &refusingSource{src, r, c.Topic}, err
}

type refusingSource struct {
	backend.Source
	r     *refusing
	topic string
}

func (s *refusingSource) Unwrap() backend.Source { return s.Source }

func (s *refusingSource) Receive(ctx context.Context, n int, bytes int64) ([]backend.Delivery, error) {
	if err := s.r.fails(s.topic, "receive"); err != nil {
		return nil, err
	}
	return s.Source.Receive(ctx, n, bytes)
}

// A topic that fails is named by State, does not delay the others, and heals alone.
func TestFailingTopic(t *testing.T) {
	for _, verb := range []string{"attach", "receive"} {
		t.Run(verb, func(t *testing.T) {
			var r *refusing
			wrap := func(b backend.Backend) backend.Backend {
				r = &refusing{Backend: b, topic: "orders.b", verb: verb}
				r.broken.Store(true)
				return r
			}
			withMany(t, wrap, func(m *many) {
				for _, topic := range []string{"orders.a", "orders.b", "orders.c"} {
					m.publish(topic, "1")
				}
				s := m.read("orders.*", eventbus.SubscribeOptions{}, nil)
				got := m.after(time.Second)
				require.Equal(t, map[string][]string{"orders.a": {"1"}, "orders.c": {"1"}}, got)
				state, err := s.State()
				require.Equal(t, observer.Degraded, state)
				require.ErrorIs(t, err, backend.ErrDenied)
				require.ErrorContains(t, err, "topic orders.b: ")
				require.ErrorContains(t, m.Ready(m.Context()), "orders.*/g is degraded: topic orders.b: ")
				m.publish("orders.a", "2")
				require.Equal(t, []string{"1", "2"}, m.after(time.Second)["orders.a"])

				r.broken.Store(false)
				require.Equal(t, []string{"1"}, m.after(5 * time.Second)["orders.b"])
				require.NoError(t, m.Ready(m.Context()))
			})
		})
	}
}
