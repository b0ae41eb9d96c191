package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
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

var options = eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{MaxAttempts: 2, Jitter: -1}}

// Each step of an event has its record, with times in microseconds.
func TestEachStepHasARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		bus, r, stop := watched(t, b, lifecycle.Options{})
		start := time.Now().UTC()
		_, err := bus.Subscribe(t.Context(), "orders", options, func(_ context.Context, d *eventbus.Delivery) error {
			time.Sleep(1500 * time.Microsecond)
			switch {
			case d.ID == "snoozed" && !d.Redelivered:
				return eventbus.Snooze(time.Minute)
			case d.ID == "dropped":
				return eventbus.Drop("not needed")
			case d.ID == "panics":
				panic("boom")
			case d.ID == "fails", d.ID == "heals" && d.Attempt == 1:
				return fmt.Errorf("charge: %w", errBroken)
			}
			return nil
		})
		require.NoError(t, err)
		for _, id := range []string{"good", "heals", "fails", "panics", "snoozed", "dropped"} {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id, Type: "order." + id, Payload: []byte("secret"), Key: id}))
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "late", Time: start.Add(-time.Hour), TTL: time.Minute}))
		time.Sleep(time.Hour)
		stop()
		got := map[string][]string{}
		all := records(t, b, "orders")
		for _, rec := range all {
			got[rec.ID] = append(got[rec.ID], strings.TrimSpace(fmt.Sprintf("%s #%d %s%s", rec.State, rec.Attempt, rec.Reason, rec.Error)))
			require.Equal(t, "orders", rec.Topic)
			require.Equal(t, "g", rec.Group)
			if rec.ID != "late" {
				require.Equal(t, "order."+rec.ID, rec.Type)
			}
		}
		for _, ls := range got {
			slices.Sort(ls[1:]) // a retry may be told before its failure
		}
		require.Equal(t, map[string][]string{
			"good":    {"active #1", "completed #1"},
			"heals":   {"active #1", "active #2", "completed #2", "failed #1 charge: broken", "retried #1 charge: broken"},
			"fails":   {"active #1", "active #2", "dead-lettered #2 exhaustedcharge: broken", "failed #1 charge: broken", "failed #2 charge: broken", "retried #1 charge: broken"},
			"panics":  {"active #1", "active #2", "dead-lettered #2 exhaustedhandler panicked: boom", "failed #1 handler panicked: boom", "failed #2 handler panicked: boom", "retried #1 handler panicked: boom"},
			"snoozed": {"active #1", "active #1", "completed #1", "snoozed #1"},
			"dropped": {"active #1", "discarded #1 droppeddropped: not needed"},
			"late":    {"active #1", "expired #1 expiredexpired at " + start.Add(-59*time.Minute).Format(time.RFC3339)},
		}, got)

		find := func(state lifecycle.State, id string) lifecycle.Record {
			i := slices.IndexFunc(all, func(r lifecycle.Record) bool { return r.State == state && r.ID == id })
			return all[i]
		}
		require.EqualValues(t, 1500, find(lifecycle.Completed, "good").TookMicros)
		require.Equal(t, start.Add(1500*time.Microsecond), find(lifecycle.Completed, "good").Time)
		retried := find(lifecycle.Retried, "heals")
		require.EqualValues(t, time.Second.Microseconds(), retried.DelayMicros)
		require.Equal(t, 2, retried.NextAttempt)
		require.Equal(t, 2, retried.MaxAttempts)
		require.NotEmpty(t, retried.Class)
		require.EqualValues(t, time.Minute.Microseconds(), find(lifecycle.Snoozed, "snoozed").DelayMicros)
		require.Zero(t, r.Dropped())

		ms, err := backend.Read(t.Context(), b, "orders.lifecycle", "", 100)
		require.NoError(t, err)
		for i := range ms {
			require.NotContains(t, string(ms[i].Payload), "secret")
			require.NotEmpty(t, ms[i].Headers.Get("ce-source"))
		}
	})
}

// A ManualHandler holds its event. A lost lease is recorded.
func TestOtherSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		bus, r, stop := watched(t, b, lifecycle.Options{})
		_, err := bus.SubscribeManual(t.Context(), "orders", options, func(_ context.Context, d *eventbus.ManualDelivery) error {
			go func() { _ = d.Ack(context.WithoutCancel(t.Context())) }()
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		time.Sleep(time.Second)
		r.Observer().LeaseLost(observer.LeaseLost{About: observer.About{Topic: "orders", Group: "g", ID: "2", Attempt: 3}, Err: eventbus.ErrLeaseLost})
		r.Observer().Handled(observer.Handled{About: observer.About{Topic: "orders", Group: "g", ID: "2", Attempt: 3}, Outcome: observer.Forget})
		_, err = bus.SubscribeBatch(t.Context(), "batched", options, eventbus.Batch{}, func(_ context.Context, ds []*eventbus.Delivery) []error {
			return make([]error, len(ds))
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "batched", &eventbus.Event{ID: "1"}, &eventbus.Event{ID: "2"}))
		time.Sleep(time.Second)
		stop()
		require.Equal(t, []string{"active 1 #1 ", "held 1 #1 ", "lease-lost 2 #3 " + observer.ErrorText(eventbus.ErrLeaseLost)}, lines(records(t, b, "orders")))
		require.Equal(t, []string{"active 1 #1 ", "active 2 #1 ", "completed 1 #1 ", "completed 2 #1 "}, lines(records(t, b, "batched")))
	})
}

// Handlers of records make no records, not even about dead letters of records.
func TestNoRecordsAboutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		bus, _, stop := watched(t, b, lifecycle.Options{})
		for topic, dead := range map[string]string{"orders": "", "orders.lifecycle": "dead", "dead": "dead.dlq"} {
			o := eventbus.SubscribeOptions{Group: "g", DeadLetter: dead}
			_, err := bus.Subscribe(t.Context(), topic, o, func(context.Context, *eventbus.Delivery) error {
				return eventbus.Permanent(errBroken)
			})
			require.NoError(t, err)
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.Publish(t.Context(), "orders.lifecycle", &eventbus.Event{ID: "of another program"}))
		time.Sleep(time.Hour)
		stop()
		topics, err := b.Topics(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"dead", "dead.dlq", "dead.lifecycle", "orders", "orders.dlq", "orders.lifecycle"}, topics)
		require.Len(t, records(t, b, "dead"), 3, "of the dead letter of the event of another program only")
	})
}

// A broker that does not answer delays no run. Records beyond Queue are dropped, counted and
// told.
func TestAFullQueueDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		type drop struct {
			records int64
			err     error
			at      time.Duration
		}
		var drops []drop
		start := time.Now()
		r := lifecycle.New(lifecycle.Options{Queue: 10, OnDrop: func(n int64, err error) {
			drops = append(drops, drop{n, err, time.Since(start)})
		}})
		var hangs atomic.Bool
		hangs.Store(true)
		require.NoError(t, r.Start(t.Context(), stuck{lasting{b}, &hangs}))
		tell(r.Observer(), "orders", 1)
		synctest.Wait()                  // it is on its way
		tell(r.Observer(), "orders", 12) // three of them are too many
		require.Zero(t, time.Since(start))
		require.EqualValues(t, 3, r.Dropped())
		time.Sleep(6 * time.Second) // the first call has failed
		hangs.Store(false)
		time.Sleep(6 * time.Second) // the second call has failed
		tell(r.Observer(), "orders", 2)
		time.Sleep(time.Minute)
		require.EqualValues(t, 13, r.Dropped())
		require.NoError(t, r.Close(t.Context()))
		require.Len(t, records(t, b, "orders"), 2)
		require.Len(t, drops, 2)
		require.Equal(t, drop{4, drops[0].err, 5 * time.Second}, drops[0], "three without room, one not stored")
		require.EqualValues(t, 9, drops[1].records)
		require.GreaterOrEqual(t, drops[1].at, 15*time.Second, "at most one call in ten seconds")
		tell(r.Observer(), "orders", 1)
		require.EqualValues(t, 14, r.Dropped(), "after Close")
	})
}

// A stuck is a backend whose Publish ends with its context only, while hangs is true.
type stuck struct {
	lasting
	hangs *atomic.Bool
}

func (s stuck) Publish(ctx context.Context, msgs []*backend.Message) error {
	if s.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Backend.Publish(ctx, msgs)
}

// Close publishes the records that wait. It ends with its ctx.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		r := lifecycle.New(lifecycle.Options{})
		tell(r.Observer(), "orders", 600) // before Start
		require.NoError(t, r.Start(t.Context(), b))
		require.NoError(t, r.Close(t.Context()))
		require.NoError(t, r.Close(t.Context()))
		require.Len(t, records(t, b, "orders"), 600)
		require.Error(t, r.Start(t.Context(), b))

		var hangs atomic.Bool
		hangs.Store(true)
		var told int64
		r = lifecycle.New(lifecycle.Options{Timeout: time.Hour, OnDrop: func(n int64, _ error) { told += n }})
		require.NoError(t, r.Start(t.Context(), stuck{lasting{b}, &hangs}))
		require.Error(t, r.Start(t.Context(), b))
		tell(r.Observer(), "orders", 600)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errBroken)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, r.Close(ctx), errBroken)
		require.Equal(t, time.Minute, time.Since(start))
		require.EqualValues(t, 600, r.Dropped())
		require.EqualValues(t, 600, told)

		r = lifecycle.New(lifecycle.Options{})
		tell(r.Observer(), "orders", 3)
		require.NoError(t, r.Close(t.Context()))
		require.EqualValues(t, 3, r.Dropped())
	})
}

// Without OnDrop a warning is logged. The name of a topic of records may be too long.
func TestWithoutOnDropAWarningIsLogged(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	r := lifecycle.New(lifecycle.Options{})
	require.NoError(t, r.Start(t.Context(), inmemory.New(inmemory.Options{})))
	tell(r.Observer(), strings.Repeat("x", backend.MaxName), 1)
	tell(r.Observer(), "orders", 1)
	require.NoError(t, r.Close(t.Context()))
	require.Contains(t, out.String(), "eventbus: lifecycle records dropped")
	require.Contains(t, out.String(), "records=1 ")
}

// A backend whose topics cannot be bounded is refused.
func TestABackendThatCannotRemoveIsRefused(t *testing.T) {
	var plain struct{ backend.Backend }
	require.ErrorIs(t, lifecycle.New(lifecycle.Options{}).Start(t.Context(), plain), errors.ErrUnsupported)
	for _, o := range []lifecycle.Options{{MaxRecords: -1}, {Queue: -1}, {Timeout: -1}} {
		require.Panics(t, func() { lifecycle.New(o) })
	}
}
