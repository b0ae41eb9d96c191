package bus_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
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

// A topic keeps the events for the groups that the options name, from the first use on.
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

// A group that was declared gets the events published since then, whatever its Start.
func TestDeclareKeepsEvents(t *testing.T) {
	for _, start := range []eventbus.Start{eventbus.StartEarliest, eventbus.StartLatest} {
		on(t, func(t *testing.T, bus *eventbustest.Bus) {
			o := eventbus.SubscribeOptions{Group: "g", Start: start}
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "before"}))
			require.NoError(t, bus.Declare(t.Context(), "orders", o))
			require.NoError(t, bus.Declare(t.Context(), "orders", o), "again it changes nothing")
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "after"}))
			require.NoError(t, bus.Declare(t.Context(), "orders", o))
			var got arrivals
			_, err := bus.Subscribe(t.Context(), "orders", o, got.handle)
			require.NoError(t, err)
			require.NoError(t, bus.WaitIdle(t.Context()))
			want := []string{"before", "after"}
			if start == eventbus.StartLatest {
				want = want[1:]
			}
			require.Equal(t, want, got.ids())
		})
	}
}

// Declare refuses options with the errors of Subscribe, and makes nothing for patterns and
// instances.
func TestDeclareRefuses(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		for _, row := range []struct {
			topic string
			o     eventbus.SubscribeOptions
		}{
			{"orders", eventbus.SubscribeOptions{}},
			{"or ders", eventbus.SubscribeOptions{Group: "g"}},
			{"orders", eventbus.SubscribeOptions{Group: "g", Concurrency: -1}},
		} {
			_, err := bus.Subscribe(t.Context(), row.topic, row.o, succeed)
			require.Error(t, err)
			require.EqualError(t, bus.Declare(t.Context(), row.topic, row.o), err.Error())
		}
		require.NoError(t, bus.Declare(t.Context(), "orders.*", eventbus.SubscribeOptions{Group: "g"}))
		require.NoError(t, bus.Declare(t.Context(), "orders", eventbus.SubscribeOptions{Group: eventbus.EachInstance}))
		require.NoError(t, bus.Shutdown(t.Context()))
		require.ErrorIs(t, bus.Declare(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}), eventbus.ErrClosed)
	})
}

// Options returns the settings in force, with the defaults of the bus.
func TestOptionsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.NewWith(t, eventbus.Options{Timeout: 7 * time.Second})
		given := eventbus.SubscribeOptions{Group: "g", Concurrency: 3, Topics: []string{"a", "b"}, Retry: eventbus.Retry{Rules: []eventbus.RetryRule{{Class: "panic", MaxAttempts: 1}}}}
		s, err := bus.Subscribe(t.Context(), "", given, succeed)
		require.NoError(t, err)
		o := s.Options()
		require.Equal(t, 7*time.Second, o.Timeout)
		require.Equal(t, 30*time.Second, o.Lease)
		require.Equal(t, 3, o.Concurrency)
		require.Equal(t, 12, o.Retry.MaxAttempts)
		require.Equal(t, given.Topics, o.Topics)
		o.Topics[0], o.Retry.Rules[0].Class = "x", "x"
		require.Equal(t, given.Topics, s.Options().Topics, "the caller has a copy")
		require.Equal(t, given.Retry.Rules, s.Options().Retry.Rules)

		batch, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: 20}, eventbus.Batch{}, func(context.Context, []*eventbus.Delivery) []error { return nil })
		require.NoError(t, err)
		require.Equal(t, 2000, batch.Options().MaxInFlight)
		require.Equal(t, "orders.dlq", batch.Options().DeadLetter)

		each, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: eventbus.EachInstance}, succeed)
		require.NoError(t, err)
		require.Equal(t, each.Group(), each.Options().Group)
		require.Equal(t, eventbus.StartLatest, each.Options().Start)
	})
}

// A new group begins with the oldest event that the topic keeps. With Keep it gets all ten events that
// another group has settled. Without Keep the broker may forget an event as soon as every group has
// settled it, so the new group gets none of them from a broker that does so at once.
//
// Redis trims a young topic only after a minute, because after a loss of data its groups are
// created one after another, and each must get all events. A new group therefore gets between
// none and all of the ten, and an application must not rely on either number.
func TestANewGroupGetsKeptEvents(t *testing.T) {
	for _, broker := range []struct {
		name    string
		url     func(t *testing.T) string
		forgets bool // settled events, at the first Maintain
	}{
		{"memory", func(*testing.T) string { return "mem:" }, true},
		{"bolt", func(t *testing.T) string { return "bolt:" + filepath.ToSlash(filepath.Join(t.TempDir(), "events.db")) }, true},
		{"redis", func(t *testing.T) string { return redistest.Start(t).URL() }, false},
		{"nats", func(t *testing.T) string { return natstest.Start(t).URL() }, true},
	} {
		t.Run(broker.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			url, o := broker.url(t), eventbus.Options{Topics: map[string]eventbus.TopicOptions{"kept": {Keep: time.Hour}}}
			bus, err := eventbus.Open(ctx, url, o, inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{})
			require.NoError(t, err)
			defer func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) }()

			all := settled(ctx, t, bus, "kept")
			require.Equal(t, append(all, "last"), fromEarliest(ctx, t, bus, "kept"))
			all = settled(ctx, t, bus, "plain")
			for broker.forgets && depth(ctx, t, bus, "plain") > 0 {
				time.Sleep(20 * time.Millisecond)
			}
			got := fromEarliest(ctx, t, bus, "plain")
			require.Equal(t, append(all, "last")[len(all)+1-len(got):], got)
			if broker.forgets {
				require.Equal(t, []string{"last"}, got)
			}
		})
	}
}

// settled publishes ten events, and returns their IDs when a group has settled them and its backlog
// was maintained.
func settled(ctx context.Context, t *testing.T, bus *eventbus.Bus, topic string) (ids []string) {
	t.Helper()
	_, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{Group: "first"}, succeed)
	require.NoError(t, err)
	for i := range 10 {
		ids = append(ids, fmt.Sprint(i))
		require.NoError(t, bus.Publish(ctx, topic, &eventbus.Event{ID: ids[i]}))
	}
	for {
		stats, err := backend.StatsOf(ctx, bus.Backend(), topic, "first")
		require.NoError(t, err)
		if stats.Lag == 0 && stats.InFlight == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	depth(ctx, t, bus, topic)
	return ids
}

// depth returns the number of events that the topic has after Maintain.
func depth(ctx context.Context, t *testing.T, bus *eventbus.Bus, topic string) int {
	t.Helper()
	b, ok := backend.As[backend.Maintainer](bus.Backend())
	require.True(t, ok)
	_, err := b.Maintain(ctx, topic, "first")
	require.NoError(t, err)
	ms, err := backend.Read(ctx, bus.Backend(), topic, backend.StartEarliest, 100)
	require.NoError(t, err)
	return len(ms)
}

// fromEarliest returns the IDs of the events that a new group gets, up to an event that is published
// after the group was made.
func fromEarliest(ctx context.Context, t *testing.T, bus *eventbus.Bus, topic string) (ids []string) {
	t.Helper()
	handled := make(chan string, 100)
	_, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{Group: "new", Start: eventbus.StartEarliest},
		func(_ context.Context, d *eventbus.Delivery) error {
			handled <- d.ID
			return nil
		})
	require.NoError(t, err)
	require.NoError(t, bus.Publish(ctx, topic, &eventbus.Event{ID: "last"}))
	for len(ids) == 0 || ids[len(ids)-1] != "last" {
		select {
		case id := <-handled:
			ids = append(ids, id)
		case <-ctx.Done():
			require.FailNow(t, "the new group waits for its events", "it got %v", ids)
		}
	}
	return ids
}
