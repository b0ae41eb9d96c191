package bus_test

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A bus of New declares a topic when it is first used, whichever use that is.
func TestTopicsAreDeclaredWhenUsed(t *testing.T) {
	hour := backend.TopicSettings{Keep: time.Hour}
	for _, use := range []func(*eventbus.Bus) error{
		func(b *eventbus.Bus) error { return b.Publish(t.Context(), "orders", &eventbus.Event{}) },
		func(b *eventbus.Bus) error {
			_, err := b.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, succeed)
			return err
		},
	} {
		mem := inmemory.New(inmemory.Options{})
		bus, err := eventbus.New(mem, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Keep: time.Hour}, "bills": {}}})
		require.NoError(t, err)
		topics, err := mem.Topics(t.Context())
		require.NoError(t, err)
		require.Empty(t, topics, "New asks the backend for nothing")
		require.NoError(t, use(bus))
		has, err := mem.Declare(t.Context(), "orders", backend.Declaration{})
		require.NoError(t, err)
		require.Equal(t, hour, has)
		require.NoError(t, bus.Shutdown(t.Context()))
	}
}

// Open declares every topic. If a topic has other settings, they stay, and both are told.
func TestOpenDeclaresTopics(t *testing.T) {
	mem := inmemory.New(inmemory.Options{})
	var mu sync.Mutex
	var told []string
	open := func(keep time.Duration) *eventbus.Bus {
		bus, err := eventbus.Open(t.Context(), "kept:", eventbus.Options{
			Topics: map[string]eventbus.TopicOptions{"orders": {Keep: keep}},
			Observer: observer.Observer{Noticed: func(n observer.Noticed) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, n.Topic+": "+n.Text)
			}},
		}, lentDriver{mem})
		require.NoError(t, err)
		return bus
	}
	first := open(time.Hour)
	require.NoError(t, open(time.Hour).Shutdown(t.Context()))
	require.Empty(t, told, "all agree")
	require.NoError(t, open(2*time.Hour).Shutdown(t.Context()))
	require.Len(t, told, 1)
	require.Contains(t, told[0], "stay in force: Keep 1h0m0s; this program states Keep 2h0m0s;")
	has, err := mem.Declare(t.Context(), "orders", backend.Declaration{})
	require.NoError(t, err)
	require.Equal(t, time.Hour, has.Keep)
	require.NoError(t, first.Shutdown(t.Context()))
}

// A topic has the events for the groups that the options name, from the first use on.
func TestGroupsBeforeTheirMembers(t *testing.T) {
	mem := inmemory.New(inmemory.Options{})
	bus, err := eventbus.New(mem, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Groups: []string{"billing", "audit"}}}})
	require.NoError(t, err)
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
	groups, err := mem.Groups(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, []string{"audit", "billing"}, groups)
	got := make(chan string, 1)
	_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Start: eventbus.StartLatest}, func(_ context.Context, d *eventbus.Delivery) error {
		got <- d.ID
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "1", <-got)
	require.NoError(t, bus.Shutdown(t.Context()))
	_, err = eventbus.New(mem, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Groups: []string{"a group"}}}})
	require.ErrorContains(t, err, "a group")
}

// A lentDriver opens a backend that outlives each bus.
type lentDriver struct{ mem *inmemory.Backend }

func (lentDriver) Schemes() []string { return []string{"kept"} }

func (d lentDriver) Open(context.Context, *url.URL) (backend.Backend, error) { return lent{d.mem}, nil }

// A lent backend stays open after Close.
type lent struct{ *inmemory.Backend }

func (lent) Close() error { return nil }

// Topics with settings that the backend does not support, or that are negative, are refused.
func TestTopicsAreRefused(t *testing.T) {
	for _, o := range []eventbus.TopicOptions{{Keep: -1}, {MaxMessages: -1}, {MaxBytes: -1}} {
		_, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": o}})
		var field *eventbus.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "Options.Topics", field.Field)
		require.Contains(t, err.Error(), "orders")
	}
	plain := struct{ backend.Backend }{inmemory.New(inmemory.Options{})}
	_, err := eventbus.New(plain, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Keep: time.Hour}}})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = eventbus.New(plain, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {}}})
	require.NoError(t, err)
}

// The first Publish to a topic declares it within its own time, and repeats a declaration that
// fails for a moment. If there is none, nothing is stored, and the error says so.
func TestPublishWaitsForItsDeclaration(t *testing.T) {
	t.Parallel()
	hangs := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		declare []func(context.Context) error
		timeout time.Duration
		err     error
	}{
		"unavailable for a moment": {declare: []func(context.Context) error{fails(backend.ErrUnavailable), fails(backend.ErrUnknownOutcome)}},
		"refused":                  {declare: []func(context.Context) error{fails(backend.ErrDenied)}, err: backend.ErrDenied},
		"gone":                     {declare: []func(context.Context) error{fails(backend.ErrGone)}, err: backend.ErrGone},
		"refused for no reason":    {declare: []func(context.Context) error{fails(errors.New("no"))}, err: backend.ErrRefused},
		"unavailable":              {declare: slices.Repeat([]func(context.Context) error{fails(backend.ErrUnavailable)}, 100), timeout: 100 * time.Millisecond, err: backend.ErrUnavailable},
		"an unknown outcome":       {declare: slices.Repeat([]func(context.Context) error{fails(backend.ErrUnknownOutcome)}, 100), timeout: 100 * time.Millisecond, err: backend.ErrUnavailable},
		"hanging":                  {declare: []func(context.Context) error{hangs}, timeout: 100 * time.Millisecond, err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := inmemory.New(inmemory.Options{})
				bus, err := eventbus.New(&undeclared{Backend: mem, declare: c.declare}, eventbus.Options{
					PublishTimeout: cmp.Or(c.timeout, time.Minute),
					Topics:         map[string]eventbus.TopicOptions{"orders": {Keep: time.Hour}},
				})
				require.NoError(t, err)
				began := time.Now()
				err = bus.Publish(t.Context(), "orders", &eventbus.Event{})
				if c.err == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, c.err)
					require.True(t, backend.NotStored(err))
					refused := errors.Is(err, backend.ErrDenied) || errors.Is(err, backend.ErrRefused)
					require.Equal(t, !refused, errors.Is(err, backend.ErrUnavailable))
					require.ErrorContains(t, err, "not sent")
					require.Equal(t, c.timeout, time.Since(began))
				}
				topics, err := mem.Topics(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.err == nil, slices.Contains(topics, "orders"), "it is stored")
				require.NoError(t, bus.Shutdown(t.Context()))
			})
		})
	}
}

func fails(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// An undeclared backend begins with the given results of Declare.
type undeclared struct {
	*inmemory.Backend
	declare []func(context.Context) error
}

func (u *undeclared) Declare(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
	if len(u.declare) > 0 {
		next := u.declare[0]
		u.declare = u.declare[1:]
		return backend.TopicSettings{}, next(ctx)
	}
	return u.Backend.Declare(ctx, topic, d)
}
