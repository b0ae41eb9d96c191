package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/middleware"
)

// audited returns a bus that publishes its audit to itself.
func audited(t *testing.T, o middleware.AuditOptions, publish func(eventbus.Publisher) eventbus.Publisher) *eventbustest.Bus {
	t.Helper()
	var bus *eventbustest.Bus
	bus = with(t, middleware.Audit(publish(eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		return bus.Publish(ctx, topic, events...)
	})), "audit", o))
	return bus
}

func itself(p eventbus.Publisher) eventbus.Publisher { return p }

func records(t *testing.T, bus *eventbustest.Bus) (rs []middleware.AuditRecord) {
	t.Helper()
	topic := eventbus.Topic[middleware.AuditRecord]{Name: "audit", Type: middleware.AuditType}
	for _, e := range bus.Published("audit") {
		r, err := topic.Decode(&e)
		require.NoError(t, err)
		rs = append(rs, r)
	}
	return rs
}

func TestAuditRecordsEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := audited(t, middleware.AuditOptions{}, itself)
		start := time.Now().UTC()
		subscribe(t, bus, func(ctx context.Context, d *eventbus.Delivery) error {
			time.Sleep(3 * time.Second)
			d.ID = "changed by the handler"
			switch d.Attempt {
			case 1:
				return errBroken
			case 2:
				panic("boom")
			}
			return nil
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1", Type: "order", Payload: []byte("secret")}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		record := func(attempt int, began time.Duration, outcome middleware.AuditOutcome, err string) middleware.AuditRecord {
			return middleware.AuditRecord{
				Topic: "orders", Group: "g", ID: "1", Type: "order", Attempt: attempt,
				Began: start.Add(began), Took: 3 * time.Second, Outcome: outcome, Error: err,
			}
		}
		got := records(t, bus)
		for i := range got {
			got[i].Began = got[i].Began.Round(time.Second)
		}
		require.Equal(t, []middleware.AuditRecord{
			record(1, 0, middleware.AuditFailure, "broken"),
			record(2, 4*time.Second, middleware.AuditPanic, ""),
			record(3, 9*time.Second, middleware.AuditSuccess, ""),
		}, got)
		require.NotContains(t, string(bus.Published("audit")[0].Payload), "secret")
	})
}

func TestAuditOfOtherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := audited(t, middleware.AuditOptions{}, itself)
		_, err := bus.SubscribeManual(t.Context(), "manual", eventbus.SubscribeOptions{Group: "manual"},
			func(_ context.Context, d *eventbus.ManualDelivery) error {
				go func() { _ = d.Ack(context.WithoutCancel(t.Context())) }()
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "manual", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		synctest.Wait()
		require.Len(t, records(t, bus), 1)
		require.Equal(t, middleware.AuditHeld, records(t, bus)[0].Outcome)

		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			if d.Attempt == 1 {
				runtime.Goexit()
			}
			return errors.New(strings.Repeat("long ", 2<<10))
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		got := records(t, bus)[1:]
		require.Len(t, got, 3)
		require.Equal(t, middleware.AuditPanic, got[0].Outcome)
		require.Len(t, got[1].Error, 4<<10)
	})
}

func TestAFailingAuditFailsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		o := middleware.AuditOptions{OnError: func(_ context.Context, d *eventbus.Delivery, err error) {
			told = append(told, d.ID+": "+err.Error())
		}}
		bus := audited(t, o, func(eventbus.Publisher) eventbus.Publisher {
			return eventbus.PublisherFunc(func(ctx context.Context, _ string, _ ...*eventbus.Event) error {
				<-ctx.Done() // a broker that does not answer
				return context.Cause(ctx)
			})
		})
		start := time.Now()
		s := subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			d.ID = "changed by the handler"
			return nil
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 5*time.Second, time.Since(start).Round(time.Second))
		require.Zero(t, s.Counts().Failures)
		require.Equal(t, []string{"1: eventbus: audit: eventbus: audit: AuditOptions.Timeout is over"}, told)
	})
}

// A handler of records that fails must not make records, or their number grows for ever.
func TestAuditDoesNotAuditItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := audited(t, middleware.AuditOptions{}, itself)
		fail := func(context.Context, *eventbus.Delivery) error { return eventbus.Permanent(errBroken) }
		for _, topic := range []string{"audit", "audit.dlq", "orders"} {
			_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g", DeadLetter: topic + ".dlq"}, fail)
			require.NoError(t, err)
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, records(t, bus), 1)
		require.Len(t, bus.Published("audit.dlq.dlq"), 1)
	})
}

// The record, the mark of Dedupe and the warning are stored after a timeout too.
func TestAuditAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := audited(t, middleware.AuditOptions{}, itself)
		subscribe(t, bus, func(ctx context.Context, _ *eventbus.Delivery) error { <-ctx.Done(); return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, records(t, bus), 1)
		require.Equal(t, time.Minute, records(t, bus)[0].Took)
	})
}

// Audit and Logging have a record of each run, and no record of an event that Throttle gives
// back without a run.
func TestAnEventThatDidNotRunHasNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		audits := 0
		publisher := eventbus.PublisherFunc(func(context.Context, string, ...*eventbus.Event) error { audits++; return nil })
		bus := with(t, middleware.Audit(publisher, "audit", middleware.AuditOptions{}), middleware.Logging(textLogger(&out)),
			middleware.Throttle(0.01, middleware.ThrottleOptions{}))
		s := subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.EqualValues(t, 3, s.Counts().Received, "one event was given back")
		require.Equal(t, 2, audits)
		require.NotContains(t, out.String(), "not handled")
	})
}
