package bus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// topicLaws are about subscriptions with many topics.
var topicLaws = []law.Law{
	{
		ID: "B.M01", Name: "many-topics", Promise: "the events of all topics of a subscription reach its handler, and Delivery.Topic names each event's topic",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"bus-mixes-deliveries"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			topics := []string{"m.a", "m.b", "n.x", "n.y"}
			publishTo(e, 20, topics...)
			s := ofTopics(e, "g", eventbus.SubscribeOptions{Topics: []string{"m.a", "m.b", "n.*"}}, buslaw.Succeed)
			publishTo(e, 20, topics...)
			e.AwaitDone(160, "g")
			for _, h := range e.Recorder.All("g") {
				if d := h.Delivery; !strings.HasPrefix(d.ID, d.Topic+" ") {
					e.Failf("event %q: got Topic %s", d.ID, d.Topic)
				}
			}
			if got := s.Topics(); !slices.Equal(got, topics) {
				e.Failf("Topics: got %v, want %v", got, topics)
			}
		}),
	},
	{
		ID: "B.M02", Name: "shared-limits", Promise: "Concurrency and MaxInFlight limit all topics of a subscription together",
		Engine: true, Faults: []string{"bus-exceeds-limits"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			topics := []string{"m.a", "m.b", "m.c", "m.d"}
			publishTo(e, 10, topics...)
			var running, most atomic.Int64
			s := ofTopics(e, "g", eventbus.SubscribeOptions{Topics: topics, Concurrency: 2, MaxInFlight: 4}, func(context.Context, *eventbus.Delivery) error {
				n := running.Add(1)
				defer running.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				time.Sleep(e.Lease / 100)
				return nil
			})
			for e.Recorder.Count() < 20 {
				if held := s.Counts().Held; held > 4 {
					e.Failf("got %d events held, want at most 4", held)
				}
				time.Sleep(law.Tick)
			}
			e.AwaitDone(40, "g")
			if n := most.Load(); n != 2 {
				e.Failf("got %d handlers at the same time, want 2", n)
			}
		}),
	},
	{
		ID: "B.M03", Name: "order-in-each-topic", Promise: "the events of a key are in order within each topic, and do not wait for events of the same key in another topic",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order", "bus-mixes-deliveries"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			publishKeyed(e, "k", 5, "m.a", "m.b")
			var first atomic.Pointer[string] // the event that fails twice
			ofTopics(e, "g", eventbus.SubscribeOptions{Topics: []string{"m.a", "m.b"}, Concurrency: 4}, failing(func(d *eventbus.Delivery) bool {
				if d.Topic != "m.a" {
					return false
				}
				first.CompareAndSwap(nil, &d.ID)
				return d.ID == *first.Load() && d.Attempt < 3
			}))
			e.AwaitDone(10, "g")
			var a, b []string
			var healed, last time.Time
			for _, h := range e.Recorder.All("g") {
				switch {
				case h.Delivery.Topic == "m.b":
					b, last = append(b, h.Delivery.ID), h.Began
				case h.Err == nil:
					if a = append(a, h.Delivery.ID); len(a) == 1 {
						healed = h.Began
					}
				}
			}
			if !last.Before(healed) {
				e.Failf("events of m.b waited for an event of m.a")
			}
			if !slices.IsSorted(a) || !slices.IsSorted(b) || len(a) != 5 || len(b) != 5 {
				e.Failf("got %v and %v, want each topic in order", a, b)
			}
		}),
	},
	{
		ID: "B.M04", Name: "dead-letters-of-each-topic", Promise: "an event that fails for good goes to the dead-letter topic of its own topic, where no pattern matches it",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"bus-joins-dead-letters"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			publishTo(e, 3, "m.a", "m.b")
			ofTopics(e, "g", eventbus.SubscribeOptions{Topics: []string{"m.*"}}, func(context.Context, *eventbus.Delivery) error {
				return eventbus.Permanent(buslaw.ErrBroken)
			})
			for _, topic := range []string{"m.a", "m.b"} {
				e.MemberOf(topic+".dlq", topic, eventbus.SubscribeOptions{Group: "dead", DeadLetter: eventbus.DiscardDeadLetters}, buslaw.Succeed)
				e.AwaitDone(3, topic)
				for _, h := range e.Recorder.All(topic) {
					if why, _ := eventbus.DeadLetterOf(&h.Delivery.Event); why.Topic != topic {
						e.Failf("%s.dlq has a dead letter of %s", topic, why.Topic)
					}
				}
			}
			e.Quiet(2*time.Second + e.Soon())
		}),
	},
	{
		ID: "B.M05", Name: "topic-found", Promise: "a topic that appears later is found within two seconds, including the events that it holds by then",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"bus-resolves-patterns"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			publishTo(e, 1, "m.a")
			ofTopics(e, "g", eventbus.SubscribeOptions{Topics: []string{"m.>"}, Start: eventbus.StartLatest}, buslaw.Succeed)
			var took []time.Duration
			for i := range 5 {
				topic := fmt.Sprintf("m.new.%d", i)
				start := time.Now()
				publishTo(e, 2, topic)
				e.AwaitDone(2*i+2, "g")
				took = append(took, time.Since(start))
			}
			e.Mostly(took, 2*time.Second+law.Hitch, "found")
		}),
	},
	{
		ID: "B.M06", Name: "topic-deleted", Promise: "a deleted topic leaves the subscription of a pattern, is not recreated by it, and does not stop the others",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"bus-resolves-patterns"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			publishTo(e, 2, "m.a", "m.b")
			s := ofTopics(e, "g", eventbus.SubscribeOptions{Topics: []string{"m.*"}}, buslaw.Succeed)
			e.AwaitDone(4, "g")
			e.Must(e.Verbs().DeleteTopic(e.Context(), "m.a"))
			for end := time.Now().Add(e.Patience()); !slices.Equal(s.Topics(), []string{"m.b"}); time.Sleep(law.Pause) {
				if time.Now().After(end) {
					e.Failf("Topics: got %v, want m.b", s.Topics())
				}
			}
			e.Must(e.Bus.Publish(e.Context(), "m.b", &eventbus.Event{ID: "m.b new"}))
			e.Await("the other topic continues", func(r *buslaw.Recorder) bool { return r.Handled["g m.b new"] })
			time.Sleep(2 * time.Second)
			topics, err := e.Verbs().Topics(e.Context())
			e.Must(err)
			if slices.Contains(topics, "m.a") {
				e.Failf("the deleted topic was recreated")
			}
		}),
	},
	{
		ID: "B.M07", Name: "topic-fails-alone", Promise: "while one topic cannot be read, the events of the others are handled; State names the topic, which recovers on its own",
		Faults: []string{"member-fails-with-others"},
		Test: buslaw.On(func(e *buslaw.Env) {
			var denied atomic.Bool
			denied.Store(true)
			e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
				return &denyingTopic{Backend: b, topic: "m.b", denied: &denied}
			})
			s := ofTopics(e, "g", eventbus.SubscribeOptions{Topics: []string{"m.a", "m.b", "m.c"}}, buslaw.Succeed)
			for i := range 4 {
				publishTo(e, 5, "m.a", "m.b", "m.c")
				e.AwaitDone(10*i+10, "g")
			}
			state, err := s.State()
			if state != observer.Degraded || err == nil || !strings.Contains(err.Error(), "m.b") {
				e.Failf("State: got %s, %v, want degraded with an error that names m.b", state, err)
			}
			denied.Store(false)
			e.AwaitDone(60, "g")
		}),
	},
	{
		ID: "B.M08", Name: "pattern-rules", Promise: "in a pattern, * matches one part and > matches one or more at the end; a wildcard does not match topics that the bus keeps for another topic, such as dead letters",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"bus-resolves-patterns"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			publishTo(e, 1, "m", "mx.a", "m.a", "m.a.b", "m.dlq", "m.a.dlq", "m.a.lifecycle")
			for pattern, want := range map[string]string{
				"m.*": "m.a", "m.>": "m.a m.a.b", "*.a": "m.a mx.a", "m.*.dlq": "m.a.dlq",
			} {
				o := eventbus.SubscribeOptions{Group: "g" + fmt.Sprint(len(pattern)), Topics: []string{pattern}, DeadLetter: eventbus.DiscardDeadLetters}
				s := ofTopics(e, pattern, o, buslaw.Succeed)
				if got := strings.Join(s.Topics(), " "); got != want {
					e.Failf("%s: got %s, want %s", pattern, got, want)
				}
				e.Must(s.Drain(e.Bounded()))
			}
		}),
	},
	{
		ID: "B.M09", Name: "idle-topics-take-no-slots", Promise: "a topic without events takes up no capacity: even with MaxInFlight 1, the events of each topic are handled within two seconds",
		Faults: []string{"member-reads-on"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			topics := []string{"m.a", "m.b", "m.c"}
			ofTopics(e, "g", eventbus.SubscribeOptions{Topics: topics, MaxInFlight: 1}, buslaw.Succeed)
			for i := range 9 {
				start := time.Now()
				publishTo(e, 1, topics[i%3])
				e.AwaitDone(i+1, "g")
				e.By(start, 2*time.Second, "handled")
			}
		}),
	},
}

// ofTopics subscribes to o.Topics. The Recorder keeps the runs of h under name.
func ofTopics(e *buslaw.Env, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.MemberOf("", name, o, h)
}

// publishTo publishes n events without a key to each topic, one topic after another. Their IDs
// begin with the topic and are in order.
func publishTo(e *buslaw.Env, n int, topics ...string) {
	e.Helper()
	publishKeyed(e, "", n, topics...)
}

// publishKeyed is like publishTo, but all events have the same key.
func publishKeyed(e *buslaw.Env, key string, n int, topics ...string) {
	e.Helper()
	for _, topic := range topics {
		for range n {
			at := published.Add(1)
			e.Must(e.Bus.Publish(e.Context(), topic, &eventbus.Event{ID: fmt.Sprintf("%s %09d", topic, at), Key: key}))
		}
	}
}

var published atomic.Int64

// denyingTopic is a backend that refuses to read one topic while denied is true.
type denyingTopic struct {
	backend.Backend
	topic  string
	denied *atomic.Bool
}

func (d *denyingTopic) Unwrap() backend.Backend { return d.Backend }

func (d *denyingTopic) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := d.Backend.Attach(ctx, c)
	if err != nil || c.Topic != d.topic {
		return src, err
	}
	return &unreadable{src, d.denied}, nil
}

type unreadable struct {
	backend.Source
	denied *atomic.Bool
}

func (s *unreadable) Unwrap() backend.Source { return s.Source }

func (s *unreadable) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	if s.denied.Load() {
		return nil, backend.ErrDenied
	}
	return s.Source.Receive(ctx, limit, maxBytes)
}
