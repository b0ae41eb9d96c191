package service

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/limiter"
)

// samples has a value for each option that a program sets.
var samples = eventbus.SubscribeOptions{
	Group: "g", Topics: []string{"a"}, Ack: eventbus.AckOnReceive, Order: eventbus.Unordered, Start: eventbus.StartLatest,
	Concurrency: 3, MaxConcurrency: 5, MaxRedelivered: 1, MaxInFlight: 30, MaxBytes: 3 << 20, Limiter: limiter.MaxInFlight(9), Lease: 3 * time.Second,
	Timeout: 3 * time.Second, LeaveTimeouts: true, MaxReceive: 3 << 20, DeadLetterExpired: true, DeadLetterOnReceive: true,
	OnFailure: eventbus.FailAll, DeadLetter: "dead", OnDeadLetter: func(*eventbus.Event, eventbus.DeadLetter) {},
	Retry: eventbus.Retry{
		MaxAttempts: 3, Initial: 3 * time.Second, Max: 33 * time.Second, Jitter: 0.3,
		Delay: func(*eventbus.Delivery, error) time.Duration { return 0 }, Rules: []eventbus.RetryRule{{Class: "x"}},
	},
}

// each calls f with each option, including those of Retry.
func each(v reflect.Value, path []int, f func(name string, path []int)) {
	for i := range v.NumField() {
		field, at := v.Type().Field(i), append(slices.Clone(path), i)
		switch {
		case !field.IsExported():
		case field.Type.Kind() == reflect.Struct:
			each(v.Field(i), at, f)
		default:
			f(field.Name, at)
		}
	}
}

// A group inherits an option of the service, or the service refuses the option. A value of the
// group wins.
func TestEachOptionIsInheritedOrRefused(t *testing.T) {
	refused := []string{"Group", "Topics", "Ack", "Order", "Start", "MaxRedelivered", "OnFailure", "LeaveTimeouts", "DeadLetterExpired", "DeadLetterOnReceive"}
	all := reflect.ValueOf(samples)
	each(all, nil, func(name string, path []int) {
		sample := all.FieldByIndex(path)
		require.False(t, sample.IsZero(), "a sample of %s", name)
		var d eventbus.SubscribeOptions
		reflect.ValueOf(&d).Elem().FieldByIndex(path).Set(sample)
		err := checkDefaults(d)
		if slices.Contains(refused, name) {
			var f *eventbus.FieldError
			require.ErrorAs(t, err, &f, name)
			require.Equal(t, "service.Options.Defaults."+name, f.Field)
			return
		}
		require.NoError(t, err, name)
		got := reflect.ValueOf(inherit(eventbus.SubscribeOptions{}, d)).FieldByIndex(path)
		require.False(t, got.IsZero(), "%s is inherited", name)
		if sample.Comparable() {
			require.Equal(t, sample.Interface(), got.Interface(), name)
		}
		if k := sample.Kind(); k == reflect.Int || k == reflect.Int64 || k == reflect.Float64 {
			own := eventbus.SubscribeOptions{}
			at := reflect.ValueOf(&own).Elem().FieldByIndex(path)
			if k == reflect.Float64 {
				at.SetFloat(-1)
			} else {
				at.SetInt(7)
			}
			want := at.Interface()
			require.Equal(t, want, reflect.ValueOf(inherit(own, d)).FieldByIndex(path).Interface(), "the %s of the group wins", name)
		}
	})
}

// Group before service before library: the settings in force of live groups.
func TestPrecedence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.NewWith(t, eventbus.Options{Timeout: 9 * time.Second})
		plain, err := New(bus, Options{})
		require.NoError(t, err)
		defaults, err := New(bus, Options{Defaults: eventbus.SubscribeOptions{
			Timeout: 5 * time.Second, Concurrency: 4, MaxInFlight: 8, Retry: eventbus.Retry{MaxAttempts: 3, Max: time.Minute},
		}})
		require.NoError(t, err)
		for _, row := range []struct {
			name    string
			s       *Service
			group   eventbus.SubscribeOptions
			timeout time.Duration
			handler int
			held    int
			longest time.Duration
		}{
			{"library", plain, eventbus.SubscribeOptions{}, 9 * time.Second, 1, 1024, 10 * time.Minute},
			{"service", defaults, eventbus.SubscribeOptions{}, 5 * time.Second, 4, 8, time.Minute},
			{"group", defaults, eventbus.SubscribeOptions{Timeout: time.Second, Concurrency: 2, MaxInFlight: 2}, time.Second, 2, 2, time.Minute},
			{"ordered", defaults, eventbus.SubscribeOptions{Order: eventbus.OrderTotal}, 5 * time.Second, 1, 8, time.Minute},
			{"none", defaults, eventbus.SubscribeOptions{Timeout: -1}, -1, 4, 8, time.Minute},
			{"wide", defaults, eventbus.SubscribeOptions{Concurrency: 20, Retry: eventbus.Retry{Initial: time.Hour}}, 5 * time.Second, 20, 20, time.Hour},
		} {
			require.NoError(t, row.s.Register(t.Context(), row.name, Group{Topic: "orders", Options: row.group, Handler: succeed}))
			require.NoError(t, row.s.Start(t.Context()))
			o := row.s.Subscription(row.name).Options()
			require.Equal(t, row.name, o.Group)
			require.Equal(t, row.timeout, o.Timeout, row.name)
			require.Equal(t, row.handler, o.Concurrency, row.name)
			require.Equal(t, row.held, o.MaxInFlight, row.name)
			require.Equal(t, row.longest, o.Retry.Max, row.name)
		}
	})
}

func succeed(context.Context, *eventbus.Delivery) error { return nil }
