package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A batchCall is one call of a batch handler.
type batchCall struct {
	began time.Duration // since the start of the test
	ids   []string
}

// A batches holds the calls of a batch handler.
type batches struct {
	start time.Time
	mu    sync.Mutex
	calls []batchCall
}

// of returns h with its calls recorded.
func (b *batches) of(h eventbus.BatchHandler) eventbus.BatchHandler {
	b.start = time.Now()
	return func(ctx context.Context, ds []*eventbus.Delivery) []error {
		c := batchCall{began: time.Since(b.start)}
		for _, d := range ds {
			c.ids = append(c.ids, d.ID)
		}
		slices.Sort(c.ids)
		b.mu.Lock()
		b.calls = append(b.calls, c)
		b.mu.Unlock()
		return h(ctx, ds)
	}
}

// sizes returns the number of events of each call.
func (b *batches) sizes() (sizes []int) {
	for _, c := range b.calls {
		sizes = append(sizes, len(c.ids))
	}
	return sizes
}

func allHandled(context.Context, []*eventbus.Delivery) []error { return nil }

// numbered returns n events without keys, whose IDs are numbers.
func numbered(n int) []*eventbus.Event {
	es := make([]*eventbus.Event, n)
	for i := range es {
		es[i] = &eventbus.Event{ID: fmt.Sprintf("%03d", i), Payload: make([]byte, 10)}
	}
	return es
}

// deadID is the ID of the event that a dead letter is a copy of.
func deadID(e eventbus.Event) string { return e.Headers.Get("eventbus-dead-id") }

// on runs a test in a synctest bubble, on a bus in memory.
func on(t *testing.T, test func(t *testing.T, bus *eventbustest.Bus)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, eventbustest.New(t))
	})
}

// A full batch is handled at once, and another one when MaxWait has passed since its first
// event. Batches fill while a call runs.
func TestBatchesFillUpOrWait(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			eventbus.Batch{MaxSize: 4, MaxWait: time.Second}, b.of(func(context.Context, []*eventbus.Delivery) []error {
				time.Sleep(3 * time.Second)
				return nil
			}))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(10)...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, []int{4, 4, 2}, b.sizes())
		require.Equal(t, []time.Duration{0, 3 * time.Second, 7 * time.Second},
			[]time.Duration{b.calls[0].began, b.calls[1].began, b.calls[2].began})
	})
}

// Defaults and negative values of Batch.
func TestBatchWaits(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{0: 10 * time.Millisecond, -1: 0, time.Minute: time.Minute} {
		on(t, func(t *testing.T, bus *eventbustest.Bus) {
			var b batches
			_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{MaxWait: wait}, b.of(allHandled))
			require.NoError(t, err)
			time.Sleep(time.Hour)
			b.start = time.Now()
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Equal(t, want, b.calls[0].began, "MaxWait %v", wait)
		})
	}
}

// MaxBytes divides batches. An event that is larger has a batch of its own.
func TestBatchesAreBoundedInBytes(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{MaxBytes: 35}, b.of(allHandled))
		require.NoError(t, err)
		es := numbered(8) // of 10 bytes
		es[4].Payload = make([]byte, 36)
		require.NoError(t, bus.Publish(t.Context(), "orders", es...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		sizes := b.sizes()
		slices.Sort(sizes)
		require.Len(t, sizes, 4)
		for _, c := range b.calls {
			if slices.Contains(c.ids, "004") {
				require.Equal(t, []string{"004"}, c.ids)
			}
			require.LessOrEqual(t, len(c.ids), 3)
		}
	})
}

// Concurrency is how many calls run at once.
func TestBatchesAtOnce(t *testing.T) {
	for calls := 1; calls <= 3; calls++ {
		on(t, func(t *testing.T, bus *eventbustest.Bus) {
			var mu sync.Mutex
			now, most := 0, 0
			_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: calls}, eventbus.Batch{MaxSize: 5},
				func(context.Context, []*eventbus.Delivery) []error {
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					now--
					return nil
				})
			require.NoError(t, err)
			require.NoError(t, bus.Publish(t.Context(), "orders", numbered(60)...))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Equal(t, calls, most, "calls at once")
		})
	}
}

// Each event has its own result: retries, dead letters and discards as for one.
func TestEachEventOfABatchHasItsResult(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		s, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{Jitter: -1}}, eventbus.Batch{},
			b.of(func(_ context.Context, ds []*eventbus.Delivery) []error {
				errs := make([]error, len(ds))
				for i, d := range ds {
					switch {
					case d.ID == "001":
						errs[i] = eventbus.Permanent(errors.New("no such customer"))
					case d.ID == "002" && d.Attempt < 3:
						errs[i] = errors.New("later")
					case d.ID == "003":
						errs[i] = eventbus.Drop("not ours")
					}
				}
				slices.Reverse(ds) // the slice is the handler's
				return errs
			}))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(5)...))
		require.NoError(t, bus.WaitIdle(t.Context()))

		require.Equal(t, []string{"000", "001", "002", "003", "004"}, b.calls[0].ids)
		require.Equal(t, []int{5, 1, 1}, b.sizes(), "only the retry runs again")
		require.Equal(t, b.calls[1].began+2*time.Second+10*time.Millisecond, b.calls[2].began, "its second delay is two seconds")
		dead := bus.Published("orders.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, "001", deadID(dead[0]))
		c := s.Counts()
		require.EqualValues(t, 1, c.DeadLettered)
		require.EqualValues(t, 1, c.Discarded)
		require.EqualValues(t, 2, c.Retried)
	})
}

// With OrderByKey a batch has one event of each key, and a failed event holds up its key.
func TestBatchesKeepTheOrderOfKeys(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		handled, failed := map[string][]string{}, map[string]bool{}
		_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{MaxSize: 8},
			func(_ context.Context, ds []*eventbus.Delivery) []error {
				errs, keys := make([]error, len(ds)), map[string]bool{}
				for i, d := range ds {
					require.False(t, keys[d.Key], "a second event of %s in a batch", d.Key)
					keys[d.Key] = true
					if d.Attempt == 1 && len(handled[d.Key])%3 == 1 && !failed[d.ID] {
						failed[d.ID] = true
						errs[i] = errors.New("later")
						continue
					}
					handled[d.Key] = append(handled[d.Key], d.ID)
				}
				return errs
			})
		require.NoError(t, err)
		es := numbered(100)
		want := map[string][]string{}
		for i, e := range es {
			e.Key = fmt.Sprint(i % 7)
			want[e.Key] = append(want[e.Key], e.ID)
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", es...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, want, handled)
	})
}

// A drain handles events that wait for a batch at once, and loses none.
func TestDrainDoesNotWaitForABatch(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		s, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{MaxWait: time.Hour}, b.of(allHandled))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(7)...))
		time.Sleep(time.Minute)
		require.Empty(t, b.calls)
		start := time.Now()
		require.NoError(t, s.Drain(t.Context()))
		require.Zero(t, time.Since(start))
		require.Equal(t, []int{7}, b.sizes())
		require.EqualValues(t, 7, s.Counts().Acknowledged)
	})
}

// With AckOnReceive each event of a batch is acknowledged before the call.
func TestBatchWithAckOnReceive(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		s, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Ack: eventbus.AckOnReceive}, eventbus.Batch{},
			b.of(func(_ context.Context, ds []*eventbus.Delivery) []error {
				errs := make([]error, len(ds))
				errs[0] = errors.New("broken")
				return errs
			}))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(6)...))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []int{6}, b.sizes())
		require.EqualValues(t, 1, s.Counts().Discarded)
		require.EqualValues(t, 6, s.Counts().Acknowledged)
	})
}

// The context of a call has the values of the context given to SubscribeBatch, and ends
// with the call.
func TestContextOfABatch(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		var last context.Context
		_, err := bus.SubscribeBatch(ctx, "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{},
			func(ctx context.Context, _ []*eventbus.Delivery) []error {
				require.Equal(t, "value", ctx.Value(key{}))
				require.NoError(t, ctx.Err())
				last = ctx
				return nil
			})
		require.NoError(t, err)
		cancel()
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(3)...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.ErrorIs(t, last.Err(), context.Canceled)
	})
}

// Typed batches: an event that cannot be decoded is dead-lettered alone.
func TestTypedBatch(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		require.Nil(t, invoices.BatchHandler(nil))
		paid, attempts := map[string]int{}, 0
		_, err := bus.SubscribeBatch(t.Context(), invoices.Name, eventbus.SubscribeOptions{Group: "ledger", Order: eventbus.Unordered}, eventbus.Batch{},
			invoices.BatchHandler(func(_ context.Context, vs []invoice, ds []*eventbus.Delivery) []error {
				attempts++
				errs := make([]error, len(vs))
				for i, v := range vs {
					if v.Customer == "ben" && ds[i].Attempt == 1 {
						errs[i] = errors.New("later")
						continue
					}
					paid[v.Customer] += v.Cents
				}
				return errs
			}))
		require.NoError(t, err)
		odd := &eventbus.Event{ID: "odd", Type: invoices.Type, Payload: []byte("?")}
		require.NoError(t, bus.Publish(t.Context(), invoices.Name, odd))
		require.NoError(t, invoices.Publish(t.Context(), bus, invoice{"ada", 1200}, invoice{"ben", 50}, invoice{"ada", 300}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, map[string]int{"ada": 1500, "ben": 50}, paid)
		require.Equal(t, 2, attempts)
		dead := bus.Published("invoices.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, "odd", deadID(dead[0]))
	})
}

// Delivery.Context is the context of one event of a batch: with the values of its middleware,
// and with the end of its run.
func TestContextOfAnEventOfABatch(t *testing.T) {
	type key struct{}
	for _, middleware := range [][]eventbus.Middleware{nil, {func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			changed := *d
			return next(context.WithValue(ctx, key{}, "of "+d.ID), &changed)
		}
	}}} {
		synctest.Test(t, func(t *testing.T) {
			bus := eventbustest.NewWith(t, eventbus.Options{Middleware: middleware})
			var kept []context.Context
			ctx := context.WithValue(t.Context(), key{}, "of the subscription")
			_, err := bus.SubscribeBatch(ctx, "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{}, func(_ context.Context, ds []*eventbus.Delivery) []error {
				for _, d := range ds {
					want := "of " + d.ID
					if middleware == nil {
						want = "of the subscription"
					}
					require.Equal(t, want, d.Context().Value(key{}))
					require.NoError(t, d.Context().Err())
					kept = append(kept, d.Context())
				}
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, bus.Publish(t.Context(), "orders", numbered(3)...))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Len(t, kept, 3)
			for _, ctx := range kept {
				require.ErrorIs(t, ctx.Err(), context.Canceled)
			}
		})
	}
	require.NoError(t, (&eventbus.Delivery{}).Context().Err())
}

// A handler of batches sees each event as a handler of single events does: the delivery, the
// context of its middleware, its timeout, its attempts, and all that the observer hears of.
func TestBatchesAreLikeSingleEvents(t *testing.T) {
	for name, o := range map[string]eventbus.SubscribeOptions{
		"on success": {},
		"on receive": {Ack: eventbus.AckOnReceive},
		"unordered":  {Order: eventbus.Unordered},
		"fail all":   {OnFailure: eventbus.FailAll},
		"discard":    {DeadLetter: eventbus.DiscardDeadLetters},
		"rules":      {Retry: eventbus.Retry{Rules: []eventbus.RetryRule{{Class: "panic", MaxAttempts: 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Group, o.Concurrency = "g", 32 // no event waits for a handler
			o.Retry.Jitter, o.Retry.MaxAttempts = -1, 3
			o.Timeout = 10 * time.Second
			single := traced(t, func(ctx context.Context, bus *eventbus.Bus, answer eventbus.Handler) error {
				_, err := bus.Subscribe(ctx, "orders", o, answer)
				return err
			})
			for _, size := range []int{1, 5} {
				batched := traced(t, func(ctx context.Context, bus *eventbus.Bus, answer eventbus.Handler) error {
					_, err := bus.SubscribeBatch(ctx, "orders", o, eventbus.Batch{MaxSize: size, MaxWait: -1}, eachBy(answer))
					return err
				})
				for _, id := range answers {
					require.Equal(t, single[id], batched[id], "the life of event %q in batches of %d", id, size)
				}
			}
		})
	}
}

// answers are the IDs of the events of the test. Each says how its handler ends. The last one is
// no event: it stands for the counts of the subscription.
var answers = []string{
	"succeeds", "fails", "permanent", "drops", "snoozes at 1", "later at 1",
	"times out at 1", "expires", "too late", "same key 1 fails", "same key 2", "",
}

const timesOut = "times out at 1"

// answerTo ends a run as the ID of the event says.
func answerTo(ctx context.Context, d *eventbus.Delivery) error {
	switch answer, at, _ := strings.Cut(d.ID, " at "); {
	case at != "" && at != fmt.Sprint(d.Attempt):
		return nil
	case strings.HasSuffix(answer, "fails"):
		return errors.New("no")
	case answer == "permanent":
		return eventbus.Permanent(errors.New("never"))
	case answer == "drops":
		return eventbus.Drop("unwanted")
	case answer == "snoozes" && !d.Redelivered:
		return eventbus.Snooze(5 * time.Second)
	case answer == "later":
		return eventbus.RetryAfter(errors.New("later"), 7*time.Second)
	case answer == "times out":
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// eachBy returns a handler of batches that calls h for all events at the same time.
func eachBy(h eventbus.Handler) eventbus.BatchHandler {
	return func(ctx context.Context, ds []*eventbus.Delivery) []error {
		errs := make([]error, len(ds))
		var wg sync.WaitGroup
		for i, d := range ds {
			wg.Go(func() { errs[i] = h(ctx, d) })
		}
		wg.Wait()
		return errs
	}
}

// A trace holds the lives of events by ID: the runs, and all that the observer hears of.
type trace struct {
	mu    sync.Mutex
	lives map[string][]string
}

func (tr *trace) add(id, format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lives[id] = append(tr.lives[id], fmt.Sprintf(format, args...))
}

// delivered adds a step of a run of d.
func (tr *trace) delivered(step string, d *eventbus.Delivery) {
	tr.add(d.ID, "%s: attempt %d of %d, redelivered %v, group %s, topic %s, key %q, payload %q, headers %v, retry %v",
		step, d.Attempt, d.MaxAttempts, d.Redelivered, d.Group, d.Topic, d.Key, d.Payload, d.Headers, d.Retry)
}

func (tr *trace) observer() observer.Observer {
	return observer.Observer{
		Handled: func(e observer.Handled) {
			tr.add(e.ID, "handled: %s, attempt %d, error %v, tag %v", e.Outcome, e.Attempt, e.Err, e.Tag)
		},
		Retried: func(e observer.Retried) {
			tr.add(e.ID, "retried: %s after %v, attempt %d of %d, class %s, error %v, tag %v", e.Outcome, e.After, e.Attempt, e.MaxAttempts, e.Class, e.Err, e.Tag)
		},
		DeadLettered: func(e observer.DeadLettered) {
			tr.add(e.ID, "dead-lettered: %s, attempt %d, error %v, tag %v", e.Reason, e.Attempt, e.Err, e.Tag)
		},
		Discarded: func(e observer.Discarded) {
			tr.add(e.ID, "discarded: %s, attempt %d, error %v, tag %v", e.Reason, e.Attempt, e.Err, e.Tag)
		},
		Settled: func(e observer.Settled) {
			for _, tag := range e.Tags {
				tr.add("", "settled: tag %v", tag)
			}
		},
	}
}

// traced returns the lives of the events of the test, sorted because hooks run later than the
// steps that they report. The last life is of the whole subscription.
func traced(t *testing.T, subscribe func(context.Context, *eventbus.Bus, eventbus.Handler) error) map[string][]string {
	t.Helper()
	tr := &trace{lives: map[string][]string{}}
	synctest.Test(t, func(t *testing.T) {
		around := func(next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				tr.delivered("middleware", d)
				eventbus.Tag(ctx, fmt.Sprint("tag of ", d.ID, " at attempt ", d.Attempt))
				if d.ID == "too late" {
					time.Sleep(3 * time.Second)
				}
				err := next(ctx, d)
				tr.add(d.ID, "middleware: attempt %d returned %v", d.Attempt, err)
				return err
			}
		}
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{
			Observer: tr.observer(), Middleware: []eventbus.Middleware{around},
		})
		publish := func(id string) {
			e := &eventbus.Event{ID: id, Payload: []byte("payload of " + id), Headers: eventbus.Headers{{Name: "h", Value: id}}}
			switch {
			case strings.HasPrefix(id, "same key"):
				e.Key = "k"
			case id == "expires":
				e.TTL = time.Second
			case id == "too late":
				e.TTL = 4 * time.Second
			}
			require.NoError(t, bus.Publish(t.Context(), "orders", e))
		}
		for _, id := range answers[:len(answers)-1] {
			if id != timesOut {
				publish(id)
			}
		}
		time.Sleep(2 * time.Second)
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "a value of the subscription")
		require.NoError(t, subscribe(ctx, bus, func(ctx context.Context, d *eventbus.Delivery) error {
			tr.delivered("run", d)
			deadline, bounded := ctx.Deadline()
			tr.add(d.ID, "run: value %v, deadline in %v, %v", ctx.Value(key{}), time.Until(deadline).Round(time.Second), bounded)
			return answerTo(ctx, d)
		}))
		time.Sleep(time.Minute)
		publish(timesOut) // alone, because the errors of a batch that times out are timeouts
		time.Sleep(time.Hour)
		c := bus.Subscriptions()[0].Counts()
		tr.add("", "counts: %+v", c)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
	for _, life := range tr.lives {
		slices.Sort(life)
	}
	return tr.lives
}

// In random lives, with calls that fail, panic or take long and with drains in between,
// each event is handled. If there is one member at a time, the order of each key is kept.
func TestBatchesInRandomLives(t *testing.T) {
	for seed := range uint64(40) {
		on(t, func(t *testing.T, bus *eventbustest.Bus) {
			const events = 120
			r := rand.New(rand.NewPCG(seed, 22))
			var mu sync.Mutex // guards r, handled and last
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return r.IntN(n)
			}
			handled, last, alone := map[string]bool{}, map[string]string{}, seed%2 == 0
			member := func() *eventbus.Subscription {
				s, err := bus.SubscribeBatch(t.Context(), "orders",
					eventbus.SubscribeOptions{Group: "g", Concurrency: 1 + draw(3), Retry: eventbus.Retry{MaxAttempts: -1, Max: 10 * time.Second}},
					eventbus.Batch{MaxSize: 1 + draw(9), MaxBytes: int64(draw(2) * 40), MaxWait: time.Duration(draw(2000)) * time.Millisecond},
					func(_ context.Context, ds []*eventbus.Delivery) []error {
						if draw(10) == 0 {
							time.Sleep(20 * time.Second)
						}
						if draw(10) == 0 {
							panic("random")
						}
						errs := make([]error, len(ds))
						for i, d := range ds {
							if draw(5) == 0 {
								errs[i] = errors.New("random")
								continue
							}
							mu.Lock()
							if alone && d.Key != "" && d.ID <= last[d.Key] {
								errs[i] = eventbus.Permanent(fmt.Errorf("%s was handled after %s", d.ID, last[d.Key]))
							}
							handled[d.ID], last[d.Key] = true, d.ID
							mu.Unlock()
						}
						return errs
					})
				require.NoError(t, err)
				return s
			}
			one, es := member(), numbered(events)
			if !alone {
				member()
			}
			for i, e := range es {
				if i%4 > 0 {
					e.Key = fmt.Sprint(i % 7)
				}
				require.NoError(t, bus.Publish(t.Context(), "orders", e))
				if i%10 == 0 {
					time.Sleep(3 * time.Second)
				}
				if !alone && i%40 == 39 {
					require.NoError(t, one.Drain(t.Context()))
					one = member()
				}
			}
			require.NoError(t, bus.WaitIdle(t.Context()))
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, handled, events, "seed %d", seed)
			require.Empty(t, bus.Published("orders.dlq"), "seed %d", seed)
		})
	}
}
