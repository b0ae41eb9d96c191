package bus_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
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

func succeed(context.Context, *eventbus.Delivery) error { return nil }

func pass(h eventbus.Handler) eventbus.Handler { return h }

// isOf requires a *FieldError of that field.
func isOf(t *testing.T, field string, err error) {
	t.Helper()
	var f *eventbus.FieldError
	require.ErrorAs(t, err, &f, "want a FieldError of %s", field)
	require.Equal(t, field, f.Field)
}

// A nil argument is refused by name at once.
func TestNilIsRefusedByName(t *testing.T) {
	type o = eventbus.Options
	var none eventbus.Middleware
	for field, on := range map[string]struct {
		backend backend.Backend
		options o
	}{
		"backend":                      {nil, o{}},
		"Options.Middleware[1]":        {inmemory.New(inmemory.Options{}), o{Middleware: []eventbus.Middleware{pass, none}}},
		"Options.PublishMiddleware[0]": {inmemory.New(inmemory.Options{}), o{PublishMiddleware: []eventbus.PublishMiddleware{nil}}},
	} {
		bus, err := eventbus.New(on.backend, on.options)
		isOf(t, field, err)
		require.Nil(t, bus)
	}
}

// A middleware that returns nil is refused too.
func TestMiddlewareThatReturnsNilIsRefused(t *testing.T) {
	nothing := func(eventbus.Handler) eventbus.Handler { return nil }
	bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Middleware: []eventbus.Middleware{
		func(h eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error { return h(ctx, d) }
		}, nothing, pass,
	}})
	_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, succeed)
	isOf(t, "Options.Middleware[1]", err)
	require.NoError(t, bus.Shutdown(t.Context()))

	_, err = eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{PublishMiddleware: []eventbus.PublishMiddleware{
		func(eventbus.Publisher) eventbus.Publisher { return nil },
	}})
	isOf(t, "Options.PublishMiddleware[0]", err)
}

func TestNilHandlersAreRefused(t *testing.T) {
	bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
	for _, h := range []eventbus.Handler{nil, eventbus.Topic[int]{Name: "t"}.Handler(nil)} {
		_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, h)
		isOf(t, "handler", err)
	}
	_, err := bus.SubscribeManual(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, nil)
	isOf(t, "handler", err)
	require.NoError(t, bus.Shutdown(t.Context()))
}

// A careless driver returns no backend and no error.
type careless struct{}

func (careless) Schemes() []string { return []string{"none"} }

func (careless) Open(context.Context, *url.URL) (backend.Backend, error) { return nil, nil } //nolint:nilnil // the point

func TestOpenRefusesNil(t *testing.T) {
	_, err := eventbus.Open(t.Context(), "mem:", eventbus.Options{}, inmemory.Driver{}, nil)
	isOf(t, "drivers[1]", err)
	_, err = eventbus.Open(t.Context(), "none:", eventbus.Options{}, careless{})
	isOf(t, "backend", err)
}

// A backend stays with the caller when the options are refused.
func TestRefusedOptionsLeaveTheBackend(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	_, err := eventbus.New(b, eventbus.Options{MaxPending: -1})
	isOf(t, "Options.MaxPending", err)
	require.NoError(t, b.Ping(t.Context()))
}

// Run returns only after a Shutdown by another goroutine has ended.
func TestRunEndsWithShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		const work = 40 * time.Second // longer than the DrainTimeout of Run
		began := make(chan struct{})
		_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error {
			close(began)
			time.Sleep(work)
			return nil
		})
		require.NoError(t, err)
		ran := make(chan error, 1)
		go func() { ran <- bus.Run(t.Context()) }()
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		<-began
		start := time.Now()
		shut := make(chan error, 1)
		go func() { shut <- bus.Shutdown(t.Context()) }()
		select {
		case err := <-ran:
			require.NoError(t, err)
		case <-time.After(time.Hour):
			t.Fatal("Run has not returned")
		}
		require.Equal(t, work, time.Since(start))
		require.NoError(t, <-shut)
		require.NoError(t, bus.Run(t.Context()), "of a bus that is shut down")
	})
}
