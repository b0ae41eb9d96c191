package bus_test

import (
	"context"
	"errors"
	"fmt"
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

// A handler of batches sees each event as a handler of single events does: the delivery, the
// context of its middleware, its timeout, its attempts, and all that the observer is told.
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

// A trace has the lives of events by ID: the runs, and all that the observer is told.
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
// steps that they tell of. The last life is of the whole subscription.
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
