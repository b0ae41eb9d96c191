package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// The numbers of the run that draw shows. The shop takes orders at a steady rate. While the
// bank is down each charge fails immediately, and is retried after a while.
const (
	length    = 120 * time.Second
	downFrom  = 30 * time.Second
	downUntil = 60 * time.Second
	everyTime = 50 * time.Millisecond // the time between two orders
	charge    = 100 * time.Millisecond
)

// A second holds the metrics of one second.
type second struct {
	handled, failed, dead float64 // events in this second
	backlog               float64 // events at the end of the second that were never delivered, or wait for a retry
}

// outage runs the shop, and reads its metrics each second.
func outage(ctx context.Context) (seconds []second, err error) {
	i, err := newInstruments(telemetry.Options{SampleEvery: 500 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	quiet := observer.Observer{}
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), i.options(quiet))
	if err != nil {
		return nil, err
	}
	stop, err := i.telemetry.Watch(bus)
	if err != nil {
		return nil, err
	}
	defer stop()
	var down atomic.Bool
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{
		Group: "billing", Concurrency: 8, Retry: eventbus.Retry{MaxAttempts: 5},
	}, func(ctx context.Context, _ *eventbus.Delivery) error {
		if down.Load() {
			return errBank
		}
		return wait(ctx, charge)
	})
	if err != nil {
		return nil, err
	}
	var before second
	for at := range int(length / time.Second) {
		now := time.Duration(at) * time.Second
		down.Store(downFrom <= now && now < downUntil)
		if err := order(ctx, bus, time.Second); err != nil {
			return nil, errors.Join(err, bus.Shutdown(context.WithoutCancel(ctx)))
		}
		i.spans.Reset()
		total, err := i.read()
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, second{
			handled: total.handled - before.handled, failed: total.failed - before.failed, dead: total.dead - before.dead,
			backlog: total.backlog,
		})
		before = total
	}
	return seconds, bus.Shutdown(ctx)
}

// read returns the totals of the metrics until now.
func (i *instruments) read() (second, error) {
	all, err := i.samples()
	return second{
		handled: sum(all, "eventbus_attempts_total", "eventbus_outcome", "acknowledge"),
		failed:  sum(all, "eventbus_attempts_total", "eventbus_outcome", "retry"),
		dead:    sum(all, "eventbus_dead_letters_total"),
		backlog: sum(all, "eventbus_group_lag") + sum(all, "eventbus_group_delayed"),
	}, err
}

// order publishes orders at a steady rate for the time during.
func order(ctx context.Context, bus *eventbus.Bus, during time.Duration) error {
	for range int(during / everyTime) {
		if err := bus.Publish(ctx, "orders", &eventbus.Event{Type: "order.placed"}); err != nil {
			return err
		}
		if err := wait(ctx, everyTime); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
