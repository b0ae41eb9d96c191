package eventbus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// The documentation states these defaults.
func TestDefaults(t *testing.T) {
	o := Options{}.Effective()
	require.Equal(t, 30*time.Second, o.PublishTimeout)
	require.Equal(t, 25*time.Second, o.DrainTimeout)
	require.Equal(t, 10_000, o.MaxPending)
	require.Equal(t, 64<<20, o.MaxPendingBytes)
	require.False(t, o.Observer.IsZero(), "what goes wrong is logged")
	require.False(t, o.Dedup)

	s, err := SubscribeOptions{Group: "g"}.Effective("orders")
	require.NoError(t, err)
	require.Equal(t, AckOnSuccess, s.Ack)
	require.Equal(t, OrderByKey, s.Order)
	require.Equal(t, StartEarliest, s.Start)
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

	require.Equal(t, 1<<20-64<<10, MaxPayload)
	require.Equal(t, 64, MaxHeaders)
	require.Equal(t, 16<<10, MaxHeaderBytes)
}

// Twelve attempts take about 27 minutes.
func TestDefaultRetryTakesTwentySevenMinutes(t *testing.T) {
	r := Retry{Jitter: -1}.withDefaults()
	total := time.Duration(0)
	for attempt := 1; attempt < r.MaxAttempts; attempt++ {
		total += r.exponential(attempt)
	}
	require.Equal(t, 27*time.Minute+3*time.Second, total)
}

func TestRetryStaysWithinItsJitter(t *testing.T) {
	r := Retry{}.withDefaults()
	for range 1000 {
		d := r.exponential(3)
		require.GreaterOrEqual(t, d, 3200*time.Millisecond)
		require.LessOrEqual(t, d, 4800*time.Millisecond)
	}
	require.LessOrEqual(t, r.exponential(1000), 12*time.Minute, "no overflow")
}

// A contradiction is refused with an error that names the field.
func TestRefusedOptions(t *testing.T) {
	nothing := func(*SubscribeOptions) {}
	for _, c := range []struct {
		field  string
		topic  string
		change func(*SubscribeOptions)
	}{
		{"SubscribeOptions.Group", "t", func(o *SubscribeOptions) { o.Group = "" }},
		{"SubscribeOptions.Group", "t", func(o *SubscribeOptions) { o.Group = "a b" }},
		{"SubscribeOptions.DeadLetter", "t.dlq", nothing},
		{"SubscribeOptions.DeadLetter", "t", func(o *SubscribeOptions) { o.DeadLetter = "a.>" }},
		{"SubscribeOptions.DeadLetter", "t", func(o *SubscribeOptions) { o.DeadLetter = "t" }},
		{"SubscribeOptions.Order", "t", func(o *SubscribeOptions) { o.Order = 9 }},
		{"SubscribeOptions.OnFailure", "t", func(o *SubscribeOptions) { o.OnFailure = 9 }},
		{"SubscribeOptions.OnFailure", "t", func(o *SubscribeOptions) { o.OnFailure, o.Order = FailAll, Unordered }},
		{"SubscribeOptions.OnFailure", "t", func(o *SubscribeOptions) { o.OnFailure, o.Ack = FailAll, AckOnReceive }},
		{"SubscribeOptions.Start", "t", func(o *SubscribeOptions) { o.Start = "tomorrow" }},
		{"SubscribeOptions.Concurrency", "t", func(o *SubscribeOptions) { o.Concurrency = -1 }},
		{"SubscribeOptions.Concurrency", "t", func(o *SubscribeOptions) { o.Order, o.Concurrency = OrderTotal, 2 }},
		{"SubscribeOptions.MaxInFlight", "t", func(o *SubscribeOptions) { o.MaxInFlight = -1 }},
		{"SubscribeOptions.MaxInFlight", "t", func(o *SubscribeOptions) { o.Concurrency, o.MaxInFlight = 8, 4 }},
		{"SubscribeOptions.Lease", "t", func(o *SubscribeOptions) { o.Lease = -time.Second }},
		{"SubscribeOptions.Lease", "t", func(o *SubscribeOptions) { o.Lease = time.Millisecond }},
		{"SubscribeOptions.Retry.MaxAttempts", "t", func(o *SubscribeOptions) { o.Retry.MaxAttempts = -2 }},
		{"SubscribeOptions.Retry.Initial", "t", func(o *SubscribeOptions) { o.Retry.Initial = -1 }},
		{"SubscribeOptions.Retry.Max", "t", func(o *SubscribeOptions) { o.Retry.Initial, o.Retry.Max = 2, 1 }},
		{"SubscribeOptions.Retry.Jitter", "t", func(o *SubscribeOptions) { o.Retry.Jitter = 1.5 }},
	} {
		o := SubscribeOptions{Group: "g"}
		c.change(&o)
		_, err := o.Effective(c.topic)
		var f *FieldError
		require.ErrorAs(t, err, &f, "%s: %+v", c.field, o)
		require.Equal(t, c.field, f.Field)
	}
}

func TestRefusedBusOptions(t *testing.T) {
	for field, o := range map[string]Options{
		"Options.MaxPending":      {MaxPending: -1},
		"Options.MaxPendingBytes": {MaxPendingBytes: -1},
		"Options.WhenFull":        {WhenFull: DropOldest + 1},
		"Options.Dedup":           {Dedup: true},
		"Options.Service":         {Service: "a\nb"},
	} {
		var f *FieldError
		require.ErrorAs(t, o.Effective().check(backend.Limits{}), &f, field)
		require.Equal(t, field, f.Field)
	}
}
