package bus_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/engine"
)

// The documentation states these defaults.
func TestDefaults(t *testing.T) {
	o := eventbus.Options{}.Effective()
	require.Equal(t, 30*time.Second, o.PublishTimeout)
	require.Equal(t, 25*time.Second, o.DrainTimeout)
	require.Equal(t, 10_000, o.MaxPending)
	require.Equal(t, 64<<20, o.MaxPendingBytes)
	require.False(t, o.Observer.IsZero(), "what goes wrong is logged")
	require.False(t, o.Dedup)

	s, err := eventbus.SubscribeOptions{Group: "g"}.Effective("orders")
	require.NoError(t, err)
	require.Equal(t, eventbus.AckOnSuccess, s.Ack)
	require.Equal(t, eventbus.OrderByKey, s.Order)
	require.Equal(t, eventbus.StartEarliest, s.Start)
	require.Equal(t, 1, s.Concurrency)
	require.Equal(t, 1024, s.MaxInFlight)
	require.Equal(t, int64(64<<20), s.MaxBytes)
	require.Equal(t, 30*time.Second, s.Lease)
	require.Equal(t, time.Minute, s.Timeout)
	require.Equal(t, "orders.dlq", s.DeadLetter)
	require.Equal(t, 12, s.Retry.MaxAttempts)
	require.Equal(t, time.Second, s.Retry.Initial)
	require.Equal(t, 10*time.Minute, s.Retry.Max)
	require.InDelta(t, 0.2, s.Retry.Jitter, 0)

	require.Equal(t, 1<<20-64<<10, eventbus.MaxPayload)
	require.Equal(t, 64, eventbus.MaxHeaders)
	require.Equal(t, 16<<10, eventbus.MaxHeaderBytes)
}

// A contradiction is refused with an error that names the field.
func TestRefusedOptions(t *testing.T) {
	type options = eventbus.SubscribeOptions
	nothing := func(*options) {}
	for _, c := range []struct {
		field  string
		topic  string
		change func(*options)
	}{
		{"SubscribeOptions.Group", "t", func(o *options) { o.Group = "" }},
		{"SubscribeOptions.Group", "t", func(o *options) { o.Group = "a b" }},
		{"SubscribeOptions.DeadLetter", "t.dlq", nothing},
		{"SubscribeOptions.DeadLetter", "t", func(o *options) { o.DeadLetter = "a.>" }},
		{"SubscribeOptions.DeadLetter", "t", func(o *options) { o.DeadLetter = "t" }},
		{"SubscribeOptions.Order", "t", func(o *options) { o.Order = 9 }},
		{"SubscribeOptions.OnFailure", "t", func(o *options) { o.OnFailure = 9 }},
		{"SubscribeOptions.OnFailure", "t", func(o *options) { o.OnFailure, o.Order = eventbus.FailAll, eventbus.Unordered }},
		{"SubscribeOptions.OnFailure", "t", func(o *options) { o.OnFailure, o.Ack = eventbus.FailAll, eventbus.AckOnReceive }},
		{"SubscribeOptions.Start", "t", func(o *options) { o.Start = "tomorrow" }},
		{"SubscribeOptions.Concurrency", "t", func(o *options) { o.Concurrency = -1 }},
		{"SubscribeOptions.Concurrency", "t", func(o *options) { o.Order, o.Concurrency = eventbus.OrderTotal, 2 }},
		{"SubscribeOptions.MaxInFlight", "t", func(o *options) { o.MaxInFlight = -1 }},
		{"SubscribeOptions.MaxInFlight", "t", func(o *options) { o.Concurrency, o.MaxInFlight = 8, 4 }},
		{"SubscribeOptions.Lease", "t", func(o *options) { o.Lease = -time.Second }},
		{"SubscribeOptions.Lease", "t", func(o *options) { o.Lease = time.Millisecond }},
		{"SubscribeOptions.Retry.MaxAttempts", "t", func(o *options) { o.Retry.MaxAttempts = -2 }},
		{"SubscribeOptions.Retry.Initial", "t", func(o *options) { o.Retry.Initial = -1 }},
		{"SubscribeOptions.Retry.Max", "t", func(o *options) { o.Retry.Initial, o.Retry.Max = 2, 1 }},
		{"SubscribeOptions.Retry.Jitter", "t", func(o *options) { o.Retry.Jitter = 1.5 }},
	} {
		o := options{Group: "g"}
		c.change(&o)
		_, err := o.Effective(c.topic)
		var f *eventbus.FieldError
		require.ErrorAs(t, err, &f, "%s: %+v", c.field, o)
		require.Equal(t, c.field, f.Field)
	}
}

func TestRefusedBusOptions(t *testing.T) {
	for field, o := range map[string]eventbus.Options{
		"Options.MaxPending":      {MaxPending: -1},
		"Options.MaxPendingBytes": {MaxPendingBytes: -1},
		"Options.WhenFull":        {WhenFull: eventbus.DropOldest + 1},
		"Options.Dedup":           {Dedup: true},
		"Options.Service":         {Service: "a\nb"},
	} {
		_, err := eventbus.New(&null{}, o)
		isOf(t, field, err)
	}
}

// An Instance is refused if it is no name, or if the backend cannot replace members, because
// an operator would rely on it.
func TestInstanceIsRefusedWithoutEffect(t *testing.T) {
	replacing := &null{limits: backend.Limits{Instances: true}}
	named := eventbus.Options{Instance: "shop-0"}
	require.NoError(t, eventbustest.On(t, replacing, named).Shutdown(t.Context()))
	_, err := eventbus.New(&null{}, named)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "Options.Instance")
	for _, name := range []string{"a b", "a~b", ".a", "${HOSTNAME}"} {
		_, err := eventbus.New(replacing, eventbus.Options{Instance: name})
		isOf(t, "Options.Instance", err)
	}
}

// The root states values that go doc shows. The packages below it use the same.
func TestConstantsAreThoseBelow(t *testing.T) {
	require.Equal(t, []eventbus.Start{backend.StartEarliest, backend.StartLatest}, []eventbus.Start{eventbus.StartEarliest, eventbus.StartLatest})
	require.Equal(t, []string{
		engine.ReasonPermanent, engine.ReasonExhausted, engine.ReasonKeyFailed, engine.ReasonUnreadable, engine.ReasonNoVerdict, engine.ReasonExpired,
		engine.ReasonTooLarge, engine.ReasonUnknown, engine.ReasonDropped, engine.ReasonGone, engine.ReasonOnReceive, engine.ReasonUnacked,
	}, []string{
		eventbus.ReasonPermanent, eventbus.ReasonExhausted, eventbus.ReasonKeyFailed, eventbus.ReasonUnreadable, eventbus.ReasonNoVerdict, eventbus.ReasonExpired,
		eventbus.ReasonTooLarge, eventbus.ReasonUnknownType, eventbus.ReasonDropped, eventbus.ReasonGone, eventbus.ReasonOnReceive, eventbus.ReasonUnconfirmed,
	})
}
