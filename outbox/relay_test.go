package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/outbox"
	"github.com/seed41896749/eventbus/outbox/internal/sqltest"
)

// A gate is a way to the bus of r. It fails the events for which fail returns an error, as a
// bus does: with an error for each event.
type gate struct {
	r    *rig
	mu   sync.Mutex
	fail func(topic string, e *eventbus.Event) error
}

func (g *gate) Publish(ctx context.Context, topic string, events ...*eventbus.Event) error {
	g.mu.Lock()
	fail := g.fail
	g.mu.Unlock()
	failed := &eventbus.PublishError{Topic: topic, Errors: make([]error, len(events))}
	bad := map[string]bool{}
	some := false
	for i, e := range events {
		err := fail(topic, e)
		if err == nil && bad[e.Key] {
			err = errBehind // a bus stops too, for the sake of order
		}
		if err == nil {
			err = g.r.bus.Publish(ctx, topic, e)
		} else if !errors.Is(err, backend.ErrRefused) && !errors.Is(err, eventbus.ErrTooLarge) {
			bad[e.Key] = e.Key != ""
		}
		failed.Errors[i], some = err, some || err != nil
	}
	if !some {
		return nil
	}
	return failed
}

func (g *gate) set(fail func(topic string, e *eventbus.Event) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = fail
}

func open(string, *eventbus.Event) error { return nil }

// told holds the failures that a relay has reported.
type told struct {
	mu  sync.Mutex
	all []outbox.Failure
}

func (f *told) add(e outbox.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, e)
}

// has reports whether a failure of op matches err.
func (f *told) has(op string, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.all, func(e outbox.Failure) bool {
		return e.Op == op && (err == nil || errors.Is(e, err)) && e.Error() != ""
	})
}

var (
	errCard   = errors.New("the card of this key is broken")
	errBehind = errors.New("behind a failed event of the key")
)

// Promise 5: an event that the bus refuses for good is set aside with its reason, reported,
// counted and listed. Other events continue, even those of its key.
func TestRefusedEvents(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		var mu sync.Mutex
		var told []outbox.Refused
		r := newRig(t, db, outbox.Options{OnRefused: func(e outbox.Refused) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		}})
		g := &gate{r: r, fail: func(_ string, e *eventbus.Event) error {
			return map[string]error{
				"large":  fmt.Errorf("redis: %w", eventbus.ErrTooLarge),
				"strict": fmt.Errorf("the broker's\x00 \xff: %w", backend.ErrRefused),
				"field":  &eventbus.FieldError{Field: "ID", Reason: "is odd"},
			}[e.ID]
		}}
		r.commit("orders", event("1", "k"), event("large", "k"), event("2", "k"), event("strict", "k"), event("field", ""), event("3", "k"))
		r.relay(g)
		r.await("orders", "1", "2", "3")
		r.empty()
		s, err := r.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, s.Refused)
		require.Eventually(t, func() bool { // each is reported after its row was set aside
			mu.Lock()
			defer mu.Unlock()
			return len(told) == 3
		}, 5*time.Second, time.Millisecond)
		require.EqualValues(t, 3, r.Counts().Refused)
		var listed []outbox.Refused
		for e, err := range r.Refused(t.Context()) {
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), e.At, time.Minute)
			e.At = time.Time{}
			listed = append(listed, e)
		}
		require.Equal(t, told, listed)
		require.Equal(t, "redis: too large", listed[0].Reason)
		require.Equal(t, "the broker's\uFFFD \uFFFD: refused", listed[1].Reason)
		require.Equal(t, "payload of field", string(listed[2].Event.Payload))

		g.set(open)
		n, err := r.Retry(t.Context(), listed[0].Number, 12345)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		r.await("orders", "1", "2", "3", "large")
		n, err = r.Retry(t.Context(), listed[0].Number)
		require.NoError(t, err)
		require.Zero(t, n, "it is not refused anymore")
		n, err = r.Discard(t.Context(), listed[0].Number, listed[1].Number, listed[2].Number)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		for range r.Refused(t.Context()) {
			require.Fail(t, "all are gone")
		}
	})
}

// Concurrent calls of Retry move each refused event once, and a list has more than a page.
func TestRetryAtOnce(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{OnRefused: func(outbox.Refused) {}})
		stop := r.relay(&gate{r: r, fail: func(string, *eventbus.Event) error { return backend.ErrRefused }})
		var events []*eventbus.Event
		for i := range 130 {
			events = append(events, event(fmt.Sprint(i), ""))
		}
		r.commit("orders", events...)
		r.empty()
		stop()
		var numbers []int64
		for e, err := range r.Refused(t.Context()) {
			require.NoError(t, err)
			numbers = append(numbers, e.Number)
		}
		require.Len(t, numbers, 130)
		var sum atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				n, err := r.Retry(t.Context(), numbers...)
				if err == nil { // a database may end one of two transactions that wait for each other
					sum.Add(int64(n))
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 130, sum.Load())
		require.Equal(t, 130, r.waiting())
	})
}

// An error without a list of events stops only the event that causes it: the relay halves the
// call. An event whose headers another program has spoilt is set aside.
func TestOneBadEventOfACall(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{OnRefused: func(outbox.Refused) {}})
		var events []*eventbus.Event
		var want []string
		for i := range 100 {
			events = append(events, event(fmt.Sprint(i), fmt.Sprint("k", i%10)))
			if i != 36 && i != 77 && i != 20 {
				want = append(want, fmt.Sprint(i))
			}
		}
		r.commit("orders", events...)
		r.exec(r.db, "UPDATE eventbus_outbox SET headers = 'x' WHERE id = 21")
		r.relay(eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
			for _, e := range events {
				switch e.ID {
				case "36":
					return &eventbus.FieldError{Field: "events[3]", Reason: "is odd"}
				case "77":
					panic(errCard)
				}
			}
			return r.bus.Publish(ctx, topic, events...)
		}))
		want = slices.DeleteFunc(want, func(id string) bool { return id == "87" || id == "97" }) // behind 77
		r.await("orders", want...)
		require.Eventually(t, func() bool { return r.Counts().Refused == 2 }, 5*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return r.waiting() == 3 }, 5*time.Second, time.Millisecond)
	})
}

// A bus that fails every event without a reason is not asked for each of them. An attempt
// ends after a few calls, and later attempts find the good events behind bad ones.
func TestAllEventsFail(t *testing.T) {
	t.Parallel()
	var f told
	r := newRig(t, sqltest.New(t, "sqlite"), outbox.Options{OnFailure: f.add})
	var events []*eventbus.Event
	for i := range 500 {
		events = append(events, event(fmt.Sprint(i), fmt.Sprint("k", i)))
	}
	r.commit("orders", events...)
	var calls, repaired atomic.Int64
	r.relay(eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		if !f.has("publish", nil) {
			calls.Add(1)
		}
		for _, e := range events {
			if repaired.Load() == 0 || len(e.ID) == 1 {
				return errCard
			}
		}
		return r.bus.Publish(ctx, topic, events...)
	}))
	require.Eventually(t, func() bool { return f.has("publish", errCard) }, 10*time.Second, time.Millisecond)
	require.LessOrEqual(t, calls.Load(), int64(40))
	repaired.Store(1)
	require.Eventually(t, func() bool { return r.waiting() == 10 }, 10*time.Second, time.Millisecond)
}

// A topic that cannot be published waits, in order, while the rows of others continue, even if
// its rows are more than a batch. The relay tries again.
func TestATopicWaits(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		var f told
		r := newRig(t, db, outbox.Options{Batch: 10, OnFailure: f.add})
		g := &gate{r: r, fail: func(topic string, _ *eventbus.Event) error {
			if topic == "full" {
				return eventbus.ErrFull
			}
			return nil
		}}
		var full []*eventbus.Event
		var ids []string
		for i := range 50 {
			full, ids = append(full, event(fmt.Sprint(i), "k")), append(ids, fmt.Sprint(i))
		}
		r.commit("full", full...)
		r.commit("orders", event("1", "k"), event("2", "k"))
		r.relay(g)
		r.await("orders", "1", "2")
		require.True(t, f.has("publish", eventbus.ErrFull))
		require.Less(t, r.Counts().Failures, int64(20), "the delays do not grow")
		require.Empty(t, r.ids("full"))
		require.Eventually(t, func() bool { return r.waiting() == 50 }, 10*time.Second, time.Millisecond)
		s, err := r.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, "full", s.Topics[0].Topic)
		g.set(open)
		r.await("full", ids...)
		require.Zero(t, r.Counts().Refused)
	})
}

// A key whose event fails waits, while the topic's other keys continue, even beyond a batch. A
// row without a key waits alone.
func TestAKeyWaits(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{Batch: 5})
		g := &gate{r: r, fail: func(_ string, e *eventbus.Event) error {
			if e.ID == "bad" || e.ID == "alone" {
				return errCard
			}
			return nil
		}}
		r.commit("orders", event("bad", "b"), event("alone", ""), event("1", ""), event("2", "k"))
		var want, behind []string
		want = append(want, "1", "2")
		for i := range 20 {
			r.commit("orders", event(fmt.Sprint("b", i), "b"), event(fmt.Sprint("k", i), "k"))
			want, behind = append(want, fmt.Sprint("k", i)), append(behind, fmt.Sprint("b", i))
		}
		r.relay(g)
		r.await("orders", want...)
		require.Eventually(t, func() bool { return r.waiting() == 22 }, 10*time.Second, time.Millisecond)
		g.set(open)
		r.empty()
		got := slices.DeleteFunc(r.ids("orders"), func(id string) bool { return id[0] != 'b' })
		require.Equal(t, append([]string{"bad"}, behind...), got)
	})
}

// A topic whose Publish does not return delays others by no more than a moment. Relay returns
// when ctx ends.
func TestATopicHangs(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{})
		stop := r.relay(eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
			if topic == "hangs" {
				<-ctx.Done()
				return ctx.Err()
			}
			return r.bus.Publish(ctx, topic, events...)
		}))
		r.commit("hangs", event("1", "k"))
		var ids []string
		for i := range 10 {
			ids = append(ids, fmt.Sprint(i))
			r.commit("orders", event(ids[i], "k"))
			r.await("orders", ids...)
		}
		stop()
		require.Equal(t, 1, r.waiting())
	})
}

// Promise 6: a panic in a callback stops nothing, and is reported.
func TestCallbacksPanic(t *testing.T) {
	t.Parallel()
	var f told
	r := newRig(t, sqltest.New(t, "sqlite"), outbox.Options{
		OnFailure: func(e outbox.Failure) { f.add(e); panic("OnFailure") },
		OnRefused: func(outbox.Refused) { panic("OnRefused") },
		OnActive:  func(bool) { panic("OnActive") },
	})
	var failed atomic.Bool
	stop := r.relay(&gate{r: r, fail: func(_ string, e *eventbus.Event) error {
		switch {
		case e.ID == "large":
			return eventbus.ErrTooLarge
		case failed.CompareAndSwap(false, true):
			return eventbus.ErrUnavailable
		}
		return nil
	}})
	r.commit("orders", event("1", "k"), event("large", "k"), event("2", "k"))
	r.await("orders", "1", "2")
	require.Eventually(t, func() bool { return f.has("observe", nil) }, 5*time.Second, time.Millisecond)
	stop()
	panics := 0
	for _, e := range f.all {
		if p, ok := errors.AsType[*observer.PanicError](e.Err); ok {
			require.Contains(t, []string{"OnRefused", "OnActive"}, p.Where)
			panics++
		}
	}
	require.Equal(t, 3, panics) // active, refused, not active
	require.EqualValues(t, len(f.all), r.Counts().Failures)
}
