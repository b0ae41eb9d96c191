package bus_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A many is a bus in memory, and a record of the events that one handler got, by topic.
type many struct {
	*testing.T
	*eventbus.Bus
	admin backend.Admin

	mu      sync.Mutex
	got     map[string][]string // IDs
	notices []observer.Noticed
}

// withMany runs f in a bubble of synctest, with a bus on the backend that wrap returns.
func withMany(t *testing.T, wrap func(backend.Backend) backend.Backend, f func(m *many)) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		m := &many{T: t, got: map[string][]string{}}
		m.admin, _ = backend.As[backend.Admin](backend.Backend(b))
		var used backend.Backend = b
		if wrap != nil {
			used = wrap(b)
		}
		var err error
		m.Bus, err = eventbus.New(used, eventbus.Options{Observer: observer.Observer{Noticed: func(n observer.Noticed) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.notices = append(m.notices, n)
		}}})
		require.NoError(t, err)
		defer func() { require.NoError(t, m.Shutdown(context.WithoutCancel(m.Context()))) }()
		f(m)
	})
}

// read subscribes a handler that records each event and then calls next, or succeeds if next is nil.
func (m *many) read(topic string, o eventbus.SubscribeOptions, next eventbus.Handler) *eventbus.Subscription {
	m.Helper()
	o.Group = "g"
	s, err := m.Subscribe(m.Context(), topic, o, func(ctx context.Context, d *eventbus.Delivery) error {
		m.mu.Lock()
		m.got[d.Topic] = append(m.got[d.Topic], d.ID)
		m.mu.Unlock()
		if next != nil {
			return next(ctx, d)
		}
		return nil
	})
	require.NoError(m, err)
	return s
}

func (m *many) publish(topic string, ids ...string) {
	m.Helper()
	for _, id := range ids {
		require.NoError(m, m.Publish(m.Context(), topic, &eventbus.Event{ID: id, Key: "k"}))
	}
}

// after waits for d, and returns the record.
func (m *many) after(d time.Duration) map[string][]string {
	time.Sleep(d)
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.got)
}

func TestPatternAndList(t *testing.T) {
	withMany(t, nil, func(m *many) {
		for _, topic := range []string{"orders.eu", "orders.us", "orders.eu.north", "refunds", "orders.eu.dlq", "orders.us.later"} {
			m.publish(topic, topic)
		}
		s := m.read("", eventbus.SubscribeOptions{Topics: []string{"refunds", "orders.*", "new"}}, nil)
		want := map[string][]string{"orders.eu": {"orders.eu"}, "orders.us": {"orders.us"}, "refunds": {"refunds"}}
		require.Equal(t, want, m.after(time.Second))
		require.Equal(t, []string{"new", "orders.eu", "orders.us", "refunds"}, s.Topics(), "a name is a topic, though it has no event yet")
		require.Equal(t, "refunds,orders.*,new", s.Topic())
		require.Equal(t, []*eventbus.Subscription{s}, m.Subscriptions())
	})
}

// Each of a thousand topics is read once in about a second, although half of the places wait in
// Receive at most. A busy topic does not wait for a round.
func TestThousandTopics(t *testing.T) {
	withMany(t, nil, func(m *many) {
		const n = 1000
		for i := range n {
			m.publish(fmt.Sprintf("orders.%d", i), "first")
		}
		s := m.read("orders.*", eventbus.SubscribeOptions{Concurrency: 4}, nil)
		got := m.after(2 * time.Second)
		require.Len(t, got, n)
		require.Len(t, s.Topics(), n)
		for i := range n {
			m.publish(fmt.Sprintf("orders.%d", i), "second")
			time.Sleep(time.Duration(i%7) * time.Millisecond)
		}
		for topic, ids := range m.after(1100 * time.Millisecond) {
			require.Len(t, ids, 2, topic)
		}
		start := time.Now()
		for i := range 5000 {
			m.publish("orders.7", fmt.Sprint(i))
		}
		for len(m.after(20 * time.Millisecond)["orders.7"]) < 5002 {
			require.Less(t, time.Since(start), 3*time.Second)
		}
	})
}

// One place is enough for many topics: a Receive that waits in an idle topic keeps it from the
// others for a moment only.
func TestIdleTopicsLeavePlaces(t *testing.T) {
	for name, o := range map[string]eventbus.SubscribeOptions{
		"MaxInFlight": {MaxInFlight: 1},
		"Limiter":     {Limiter: limiter.MaxInFlight(1)},
		"MaxBytes":    {MaxBytes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			withMany(t, nil, func(m *many) {
				o.Topics = []string{"a", "b", "c", "d", "e"}
				m.read("", o, nil)
				for round := range 3 {
					for _, topic := range o.Topics {
						m.publish(topic, fmt.Sprint(round))
						require.Len(t, m.after(6 * time.Second)[topic], round+1, topic)
					}
				}
			})
		})
	}
}

// Concurrency and MaxInFlight are for all topics together, and a topic with a long backlog
// delays the events of others by no more than the events that are held.
func TestTopicsShareLimits(t *testing.T) {
	withMany(t, nil, func(m *many) {
		var backlog []string
		for i := range 2000 {
			backlog = append(backlog, fmt.Sprint(i))
		}
		for _, id := range backlog {
			require.NoError(t, m.Publish(m.Context(), "busy", &eventbus.Event{ID: id}))
		}
		var running, most atomic.Int64
		s := m.read("", eventbus.SubscribeOptions{Topics: []string{"busy", "a", "b"}, Concurrency: 3, MaxInFlight: 20}, func(context.Context, *eventbus.Delivery) error {
			n := running.Add(1)
			defer running.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		for range 5 {
			m.publish("a", "x")
			m.publish("b", "y")
			held := s.Counts().Held
			require.LessOrEqual(t, held, int64(20))
			m.after(time.Second)
		}
		got := m.after(0)
		require.Len(t, got["a"], 5)
		require.Len(t, got["b"], 5)
		require.Less(t, len(got["busy"]), 2000)
		require.Equal(t, int64(3), most.Load())
	})
}

// Keys of different topics are independent, and each topic has its own order.
func TestOrderOfEachTopic(t *testing.T) {
	for _, order := range []eventbus.Order{eventbus.OrderByKey, eventbus.OrderTotal} {
		withMany(t, nil, func(m *many) {
			m.publish("a", "1", "2", "3")
			m.publish("b", "1", "2", "3")
			o := eventbus.SubscribeOptions{Topics: []string{"a", "b"}, Order: order, Retry: eventbus.Retry{Initial: time.Minute, Jitter: -1}}
			m.read("", o, func(_ context.Context, d *eventbus.Delivery) error {
				if d.Topic == "a" && d.Attempt == 1 && d.ID == "1" {
					return errors.New("later")
				}
				return nil
			})
			got := m.after(30 * time.Second)
			require.Equal(t, map[string][]string{"a": {"1"}, "b": {"1", "2", "3"}}, got, "order %d", order)
			require.Equal(t, []string{"1", "1", "2", "3"}, m.after(time.Minute)["a"], "order %d", order)
		})
	}
}

// Dead letters go to the dead-letter topic of each topic, or to the one that the options give.
func TestDeadLettersOfEachTopic(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"":     {"orders.a.dlq": "orders.a", "orders.b.dlq": "orders.b"},
		"dead": {"dead": "orders.a orders.b"},
	} {
		withMany(t, nil, func(m *many) {
			m.publish("orders.a", "1")
			m.publish("orders.b", "1")
			s := m.read("orders.*", eventbus.SubscribeOptions{DeadLetter: name}, func(context.Context, *eventbus.Delivery) error {
				return eventbus.Permanent(errors.New("no"))
			})
			require.Len(t, m.after(3*time.Second), 2, "no dead letter comes to the pattern")
			require.Equal(t, int64(2), s.Counts().DeadLettered)
			for topic, from := range want {
				var origins []string
				messages, err := backend.Read(m.Context(), m.Backend(), topic, "", 10)
				require.NoError(t, err)
				for i := range messages {
					e := eventbus.EventOf(&messages[i])
					why, _ := eventbus.DeadLetterOf(&e)
					origins = append(origins, why.Topic)
				}
				slices.Sort(origins)
				require.Equal(t, from, strings.Join(origins, " "))
			}
		})
	}
}

// Pause, Resume and Drain act on all topics. Stats has sums, and Failing names the topic.
func TestAllTopicsAtOnce(t *testing.T) {
	withMany(t, nil, func(m *many) {
		topics := []string{"a", "b", "c"}
		s := m.read("", eventbus.SubscribeOptions{Topics: topics, Retry: eventbus.Retry{Initial: time.Hour}}, func(context.Context, *eventbus.Delivery) error {
			return errors.New("no")
		})
		m.after(time.Second)
		s.Pause()
		for _, topic := range topics {
			m.publish(topic, "1")
		}
		require.Empty(t, m.after(time.Minute))
		state, _ := s.State()
		require.Equal(t, observer.Paused, state)
		stats, err := s.Stats(m.Context())
		require.NoError(t, err)
		require.Equal(t, backend.Stats{Depth: 3, Lag: 3, Members: 1, Oldest: stats.Oldest}, stats)
		s.Resume()
		require.Len(t, m.after(time.Second), 3)
		failing, total := s.Failing()
		require.Equal(t, 3, total, "events of different topics may have the same position")
		require.Equal(t, failing[0].Position, failing[1].Position)
		require.NotEqual(t, failing[0].Topic, failing[1].Topic)
		require.NoError(t, s.Drain(m.Context()))
		for _, topic := range topics {
			m.publish(topic, "2")
		}
		require.Len(t, m.after(time.Minute)["a"], 1)
	})
}

// Drain while topics are found: no fetcher stays, which synctest would notice.
func TestDrainDuringSearch(t *testing.T) {
	withMany(t, nil, func(m *many) {
		for round := range 20 {
			s := m.read("orders.*", eventbus.SubscribeOptions{}, nil)
			m.publish(fmt.Sprintf("orders.%d", round), "1")
			time.Sleep(time.Second - time.Duration(round-10)*time.Microsecond)
			require.NoError(t, s.Drain(m.Context()))
		}
	})
}

// With EachInstance a pattern has a group of its own in each topic, which ends with the drain.
func TestEachInstanceOfAPattern(t *testing.T) {
	withMany(t, nil, func(m *many) {
		m.publish("orders.a", "before")
		var got []string
		s, err := m.Subscribe(m.Context(), "orders.*", eventbus.SubscribeOptions{Group: eventbus.EachInstance}, func(_ context.Context, d *eventbus.Delivery) error {
			got = append(got, d.Topic+" "+d.ID)
			return nil
		})
		require.NoError(t, err)
		m.publish("orders.a", "1")
		m.publish("orders.b", "2")
		m.after(2 * time.Second)
		require.Equal(t, []string{"orders.a 1", "orders.b 2"}, got)
		require.NoError(t, s.Drain(m.Context()))
		for _, topic := range []string{"orders.a", "orders.b"} {
			groups, err := m.admin.Groups(m.Context(), topic)
			require.NoError(t, err)
			require.Empty(t, groups, topic)
		}
	})
}

func TestRefusedTopics(t *testing.T) {
	withMany(t, nil, func(m *many) {
		for _, row := range []struct {
			topic string
			o     eventbus.SubscribeOptions
			want  string
		}{
			{"", eventbus.SubscribeOptions{}, `topic is empty`},
			{"a.>.b", eventbus.SubscribeOptions{}, `topic "a.>.b" has ">" before its last part`},
			{"a", eventbus.SubscribeOptions{Topics: []string{"b"}}, "SubscribeOptions.Topics is set, but so is the topic argument: a"},
			{"", eventbus.SubscribeOptions{Topics: []string{"a", "b", "a"}}, `SubscribeOptions.Topics has "a" twice`},
			{"", eventbus.SubscribeOptions{Topics: []string{"a", "b*"}}, `SubscribeOptions.Topics "b*" has a wildcard beside other characters of the part "b*"`},
			{"a.*", eventbus.SubscribeOptions{DeadLetter: "a.dead"}, "SubscribeOptions.DeadLetter is a.dead, which is one of the topics, a.*"},
			{"*.dlq", eventbus.SubscribeOptions{}, "SubscribeOptions.DeadLetter is required, because *.dlq is itself a dead-letter topic"},
			{"a.*", eventbus.SubscribeOptions{Start: backend.StartAfter("1")}, "SubscribeOptions.Start is a position, but each of many topics has its own positions"},
			{"", eventbus.SubscribeOptions{Topics: []string{strings.Repeat("a", 200), "b"}}, "SubscribeOptions.DeadLetter has 204 bytes, more than 200"},
		} {
			row.o.Group = "g"
			_, err := m.Subscribe(m.Context(), row.topic, row.o, func(context.Context, *eventbus.Delivery) error { return nil })
			_, ok := errors.AsType[*eventbus.FieldError](err)
			require.True(t, ok, "%v", err)
			require.EqualError(t, err, "eventbus: "+row.want)
		}
	})
	bus, err := eventbus.New(newNull(0), eventbus.Options{})
	require.NoError(t, err)
	_, err = bus.Subscribe(t.Context(), "a.*", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error { return nil })
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.EqualError(t, err, "eventbus: topic has a pattern, but the backend cannot list topics")
	require.NoError(t, bus.Shutdown(t.Context()))
}

// Members of different kinds have no topic in common, be it of a pattern.
func TestKindsOfPatterns(t *testing.T) {
	withMany(t, nil, func(m *many) {
		type order struct{}
		type refund struct{}
		o := eventbus.SubscribeOptions{Group: "g"}
		_, err := eventbus.Topic[order]{Name: "shop.*"}.Subscribe(m.Context(), m, o, func(context.Context, order, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		refunds := func(context.Context, refund, *eventbus.Delivery) error { return nil }
		_, err = eventbus.Topic[refund]{Name: "shop.refunds"}.Subscribe(m.Context(), m, o, refunds)
		require.ErrorContains(t, err, "subscribe once with ByType")
		_, err = eventbus.Topic[refund]{Name: "refunds"}.Subscribe(m.Context(), m, o, refunds)
		require.NoError(t, err)
		o.Topics = []string{"bank", "*.refunds"}
		_, err = eventbus.Topic[refund]{}.Subscribe(m.Context(), m, o, refunds)
		require.ErrorContains(t, err, "subscribe once with ByType")
	})
}

// Batches and manual mode have events of all topics.
func TestBatchesOfManyTopics(t *testing.T) {
	withMany(t, nil, func(m *many) {
		var topics []string
		_, err := m.SubscribeBatch(m.Context(), "orders.*", eventbus.SubscribeOptions{Group: "b"}, eventbus.Batch{MaxSize: 10, MaxWait: time.Second}, func(_ context.Context, ds []*eventbus.Delivery) []error {
			for _, d := range ds {
				topics = append(topics, d.Topic)
			}
			return nil
		})
		require.NoError(t, err)
		manual := 0
		_, err = m.SubscribeManual(m.Context(), "orders.*", eventbus.SubscribeOptions{Group: "m"}, func(ctx context.Context, d *eventbus.ManualDelivery) error {
			manual++
			return d.Ack(ctx)
		})
		require.NoError(t, err)
		for i := range 10 {
			m.publish(fmt.Sprintf("orders.%d", i), "1")
		}
		m.after(4 * time.Second)
		require.Len(t, topics, 10)
		require.Equal(t, 10, manual)
	})
}

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

// A topic that appears later is found within two seconds. Its first event is handled, even with
// StartLatest, but no event from before Subscribe is.
func TestTopicFoundLater(t *testing.T) {
	for _, start := range []eventbus.Start{eventbus.StartEarliest, eventbus.StartLatest} {
		withMany(t, nil, func(m *many) {
			m.publish("orders.a", "old")
			s := m.read("orders.>", eventbus.SubscribeOptions{Start: start}, nil)
			m.publish("orders.a", "new")
			for i := range 5 {
				topic := fmt.Sprintf("orders.b.%d", i)
				time.Sleep(time.Duration(i) * 313 * time.Millisecond)
				m.publish(topic, "1", "2")
				require.Equal(t, []string{"1", "2"}, m.after(2 * time.Second)[topic])
			}
			want := []string{"old", "new"}
			if start == eventbus.StartLatest {
				want = want[1:]
			}
			require.Equal(t, want, m.after(0)["orders.a"])
			require.Len(t, s.Topics(), 6)
		})
	}
}

// When a topic of a pattern is deleted, it leaves the subscription, which does not recreate it.
// It returns when a program creates it again. Other topics are not affected.
func TestDeletedTopicLeaves(t *testing.T) {
	withMany(t, nil, func(m *many) {
		m.publish("orders.a", "1")
		m.publish("orders.b", "1")
		s := m.read("orders.*", eventbus.SubscribeOptions{}, nil)
		m.after(time.Second)
		require.NoError(t, m.admin.DeleteTopic(m.Context(), "orders.a"))
		m.publish("orders.b", "2")
		require.Equal(t, []string{"1", "2"}, m.after(3 * time.Second)["orders.b"])
		require.Equal(t, []string{"orders.b"}, s.Topics())
		topics, err := m.admin.Topics(m.Context())
		require.NoError(t, err)
		require.NotContains(t, topics, "orders.a")
		state, err := s.State()
		require.NoError(t, err)
		require.Equal(t, observer.Running, state)
		require.Len(t, m.notices, 1)
		require.Equal(t, "orders.a", m.notices[0].Topic)
		require.Contains(t, m.notices[0].Text, "the topic was deleted and left the subscription orders.*")

		m.publish("orders.a", "3")
		require.Equal(t, []string{"1", "3"}, m.after(2 * time.Second)["orders.a"])
	})
}

// A group that is deleted while its topic stays is recreated at the last position, as in a
// subscription with one topic.
func TestDeletedGroupOfAPattern(t *testing.T) {
	withMany(t, nil, func(m *many) {
		require.NoError(t, backend.DeclareGroup(m.Context(), m.Backend(), "orders.a", "other", backend.StartEarliest)) // the topic keeps its events
		m.publish("orders.a", "1", "2")
		s := m.read("orders.*", eventbus.SubscribeOptions{}, nil)
		m.after(time.Second)
		require.NoError(t, m.admin.DeleteGroup(m.Context(), "orders.a", "g"))
		m.publish("orders.a", "3")
		require.Equal(t, []string{"1", "2", "3"}, m.after(3 * time.Second)["orders.a"])
		require.Equal(t, []string{"orders.a"}, s.Topics())
	})
}
