package config_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/config"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// drivers returns the drivers of this project.
func drivers() []backend.Driver {
	return []backend.Driver{inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{}}
}

// write makes a file in a folder of the test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const whole = `
bus:
  url: "mem:"
  service: shop
  publish_timeout: 10s
  drain_timeout: none
  dedup: true
  max_pending: 500
  max_pending_bytes: 10MB
  when_full: drop-oldest
  subscriptions:
    billing: &usual
      topic: shop.orders
      group: billing
      ack: on-success
      order: none
      start: latest
      concurrency: 16
      max_in_flight: 64
      max_bytes: none
      lease: 1m30s
      timeout: none
      retry: {attempts: 8, backoff: 200ms..1m, jitter: 0}
      dead_letter: (discard)
    audit:
      <<: *usual
      group: audit
      order: total
      concurrency: 1
      start: after 17-0
      ack: on-receive
      retry: {attempts: unlimited}
    plain: {topic: shop.orders, group: plain, on_failure: fail-all}
`

func TestEveryOptionOfAFile(t *testing.T) {
	c, err := config.Parse("eventbus.yaml", []byte(whole), nil)
	require.NoError(t, err)
	require.Equal(t, eventbus.Options{
		Service: "shop", PublishTimeout: 10 * time.Second, DrainTimeout: -1, Dedup: true,
		MaxPending: 500, MaxPendingBytes: 10_000_000, WhenFull: eventbus.DropOldest,
	}, c.Options())
	require.Equal(t, []string{"audit", "billing", "plain"}, c.Subscriptions())

	usual := eventbus.SubscribeOptions{
		Group: "billing", Order: eventbus.Unordered, Start: eventbus.StartLatest, Concurrency: 16, MaxInFlight: 64, MaxBytes: -1,
		Lease: 90 * time.Second, Timeout: -1, DeadLetter: eventbus.DiscardDeadLetters,
		Retry: eventbus.Retry{MaxAttempts: 8, Initial: 200 * time.Millisecond, Max: time.Minute, Jitter: -1},
	}
	audit := usual
	audit.Group, audit.Order, audit.Concurrency, audit.Ack = "audit", eventbus.OrderTotal, 1, eventbus.AckOnReceive
	audit.Start, audit.Retry = backend.StartAfter("17-0"), eventbus.Retry{MaxAttempts: -1}
	for name, want := range map[string]eventbus.SubscribeOptions{
		"billing": usual, "audit": audit, "plain": {Group: "plain", OnFailure: eventbus.FailAll}, // the bus sets omitted options
	} {
		topic, o, err := c.Subscription(name)
		require.NoError(t, err)
		require.Equal(t, "shop.orders", topic)
		require.Equal(t, want, o, name)
	}
}

// Options written as a file and parsed again stay equal.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		dur := func() time.Duration { return time.Duration(1+r.IntN(1e6)) * time.Millisecond }
		o := eventbus.SubscribeOptions{
			Group: fmt.Sprintf("g-%d", seed), Concurrency: 1 + r.IntN(64), MaxInFlight: 64 + r.IntN(1000),
			MaxBytes: int64(1 + r.IntN(1<<30)), Lease: time.Second + dur(), Timeout: dur(),
			Retry:      eventbus.Retry{MaxAttempts: 1 + r.IntN(99), Initial: dur(), Jitter: float64(1+r.IntN(100)) / 100},
			DeadLetter: "dead.letters",
		}
		o.Retry.Max = o.Retry.Initial + dur()
		text := fmt.Sprintf("bus:\n  url: \"mem:\"\n  subscriptions:\n    s: {topic: t, group: %s, concurrency: %d, max_in_flight: %d, max_bytes: %dB, lease: %v, timeout: %v, "+
			"retry: {attempts: %d, backoff: %v..%v, jitter: %v}, dead_letter: %s}\n",
			o.Group, o.Concurrency, o.MaxInFlight, o.MaxBytes, o.Lease, o.Timeout,
			o.Retry.MaxAttempts, o.Retry.Initial, o.Retry.Max, o.Retry.Jitter, o.DeadLetter)
		c, err := config.Parse("f", []byte(text), nil)
		require.NoError(t, err, text)
		_, got, err := c.Subscription("s")
		require.NoError(t, err)
		require.Equal(t, o, got, text)
	}
}

func TestUnknownSubscription(t *testing.T) {
	c, err := config.Parse("eventbus.yaml", []byte(whole), nil)
	require.NoError(t, err)
	_, _, err = c.Subscription("biling")
	require.EqualError(t, err, `eventbus.yaml: has no subscription "biling"; did you mean "billing"?`)
	_, err = c.DescribeSubscription("plane")
	require.EqualError(t, err, `eventbus.yaml: has no subscription "plane"; did you mean "plain"?`)
}

// Unused reports subscriptions that the program has not asked for.
func TestUnused(t *testing.T) {
	file := write(t, "eventbus.yaml", whole)
	bus, c, err := config.Open(t.Context(), file, nil, inmemory.Driver{})
	require.NoError(t, err)
	defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
	require.Equal(t, []string{"audit", "billing", "plain"}, c.Unused())
	s, err := c.Subscribe(t.Context(), bus, "plain", func(context.Context, *eventbus.Delivery) error { return nil })
	require.NoError(t, err)
	require.Equal(t, "shop.orders/plain", s.Topic()+"/"+s.Group())
	require.Equal(t, []string{"audit", "billing"}, c.Unused())
	_, err = c.Subscribe(t.Context(), bus, "nobody", nil)
	require.ErrorContains(t, err, `has no subscription "nobody"`)
	_, err = c.Subscribe(t.Context(), bus, "billing", nil)
	require.ErrorContains(t, err, file+":12:5: bus.subscriptions.billing: handler is nil")
}

// change adds options in code to the options of the file.
func TestChange(t *testing.T) {
	published := make(chan string, 1)
	bus, _, err := config.Open(t.Context(), write(t, "f", whole), func(o *eventbus.Options) {
		require.Equal(t, "shop", o.Service, "what the file says is there")
		o.Service = "shop in code"
		o.PublishMiddleware = append(o.PublishMiddleware, func(next eventbus.Publisher) eventbus.Publisher {
			return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
				err := next.Publish(ctx, topic, events...)
				published <- events[0].Source
				return err
			})
		})
	}, inmemory.Driver{})
	require.NoError(t, err)
	require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
	require.Equal(t, "shop in code", <-published)
	require.NoError(t, bus.Shutdown(t.Context()))
}

// A forgetful driver opens backends that remember no IDs.
type forgetful struct{ inmemory.Driver }

func (d forgetful) Open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	b, err := d.Driver.Open(ctx, u)
	return struct{ backend.Backend }{b}, err
}

// An option that the backend does not support is an error at its key.
func TestOpenSaysWhichOption(t *testing.T) {
	file := write(t, "eventbus.yaml", whole)
	bus, c, err := config.Open(t.Context(), file, nil, forgetful{})
	require.EqualError(t, err, file+":7:10: bus.dedup: is set, but the backend does not remember IDs")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Nil(t, bus)
	require.Nil(t, c)
}

// An error of subscribing that the file caused names its place.
func TestSubscribeSaysWhere(t *testing.T) {
	c, err := config.Parse("eventbus.yaml", []byte(whole), nil)
	require.NoError(t, err)
	_, err = c.Subscribe(t.Context(), refusing{}, "billing", nil)
	require.EqualError(t, err, "eventbus.yaml:22:16: bus.subscriptions.billing.timeout: must be less than lease, 30s")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// The explanation of a subscription names each event that is not simply run.
func TestPolicyInWords(t *testing.T) {
	for keys, want := range map[string]string{
		"max_receive: 64KiB":                                      "an event of more than 64 KiB goes to t.dlq without a run",
		"max_receive: 1KB, dead_letter: (discard)":                "an event of more than 1 KB is discarded without a run",
		"ack: on-receive, dead_letter_on_receive: true":           "acknowledged before it runs, so failed events go to t.dlq",
		"dead_letter_expired: true":                               "an expired event goes to t.dlq",
		"leave_timeouts: true, retry: {jitter: 0}":                "each run at most 1m; a run that times out leaves its event until the lease ends, 30s; up to 12 attempts",
		"leave_timeouts: true, lease: 1h, retry: {attempts: 2}":   "(at worst 1h2m1s, if every attempt finds",
		"leave_timeouts: true, timeout: none":                     "each run without a time limit; up to 12",
		"retry: {attempts: unlimited}, dead_letter: t.lost":       "a permanent failure goes to t.lost",
		"retry: {attempts: 1}, dead_letter: (discard)":            "one attempt, then discarded",
		"retry: {rules: {panic: {attempts: 1}}}, max_bytes: none": "after errors of class panic: one attempt",
	} {
		c, err := config.Parse("f", []byte("bus: {url: 'mem:', subscriptions: {s: {topic: t, group: g, "+keys+"}}}"), nil)
		require.NoError(t, err, keys)
		got, err := c.DescribeSubscription("s")
		require.NoError(t, err, keys)
		require.Contains(t, got, want)
	}
}

// A subscription with batch options is for a handler of batches.
func TestSubscribeBatch(t *testing.T) {
	const file = `
bus:
  url: "mem:"
  subscriptions:
    rows: {topic: rows, group: database, batch: {size: 3, bytes: 4KiB, wait: 1m}}
    slow: {topic: rows, group: slow, concurrency: 40, limits: {redelivered: 50}, batch: {size: 100}}
`
	bus, c, err := config.Open(t.Context(), write(t, "eventbus.yaml", file), nil, inmemory.Driver{})
	require.NoError(t, err)
	words, err := c.DescribeSubscription("rows")
	require.NoError(t, err)
	require.Contains(t, words, "in batches of up to 3 events or 4 KiB that wait 1m to fill")
	_, err = c.Subscribe(t.Context(), bus, "rows", func(context.Context, *eventbus.Delivery) error { return nil })
	require.ErrorContains(t, err, ":5:42: bus.subscriptions.rows.batch: is set, but the program handles single events")
	words, err = c.DescribeSubscription("slow")
	require.NoError(t, err)
	require.Contains(t, words, "at most 4,000 events or 64 MiB held")
	for keys, want := range map[string]string{
		"max_in_flight: 99": "bus.subscriptions.bad.max_in_flight: is 99, less than concurrency times batch.size, 100",
		"order: total":      "bus.subscriptions.bad.order: is OrderTotal, which would leave one event in each batch",
	} {
		_, err = config.Parse("f", []byte("bus: {url: 'mem:', subscriptions: {bad: {topic: rows, group: bad, "+keys+", batch: {size: 100}}}}"), nil)
		require.ErrorContains(t, err, want)
	}

	sizes := make(chan int)
	_, err = c.SubscribeBatch(t.Context(), bus, "rows", func(_ context.Context, ds []*eventbus.Delivery) []error {
		sizes <- len(ds)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, bus.Publish(t.Context(), "rows", &eventbus.Event{}, &eventbus.Event{}, &eventbus.Event{}))
	require.Equal(t, 3, <-sizes)
	require.NoError(t, bus.Shutdown(t.Context()))
}

type refusing struct{}

func (refusing) Subscribe(context.Context, string, eventbus.SubscribeOptions, eventbus.Handler) (*eventbus.Subscription, error) {
	return nil, &eventbus.FieldError{Field: "SubscribeOptions.Timeout", Reason: "must be less than Lease, 30s", Err: errors.ErrUnsupported}
}

// A settingsDriver knows settings of topics.
type settingsDriver struct {
	inmemory.Driver
	got *[]string
}

func (settingsDriver) Schemes() []string { return []string{"set"} }

func (d settingsDriver) Open(ctx context.Context, _ *url.URL) (backend.Backend, error) {
	return d.Driver.Open(ctx, &url.URL{Scheme: "mem"})
}

func (d settingsDriver) ConfigureTopic(topic string, settings map[string]string) (backend.Driver, error) {
	if _, ok := settings["replicas"]; !ok {
		return nil, errors.New(`unknown setting "replica"; did you mean "replicas"?`)
	}
	got := append(*d.got, topic+" "+settings["replicas"]) //nolint:gocritic // a driver of its own
	return settingsDriver{got: &got}, nil
}

func TestTopicSettings(t *testing.T) {
	file := "bus:\n  url: %s\n  topics:\n    shop.orders: {replicas: 3}\n    shop.bills: {replicas: \"${N}\"}\n    other: {}\n"
	parse := func(file, url string) *config.Config {
		c, err := config.Parse("f.yaml", fmt.Appendf(nil, file, url), []string{"N=5"})
		require.NoError(t, err)
		return c
	}
	var none []string
	set := settingsDriver{got: &none}
	require.NoError(t, parse(file, "set://").Check(t.Context(), set))
	bus, err := parse(file, "set://").Open(t.Context(), nil, set)
	require.NoError(t, err)
	require.NoError(t, bus.Shutdown(t.Context()))

	err = parse(strings.ReplaceAll(file, "replicas: \"", "replica: \""), "set://").Check(t.Context(), set)
	require.EqualError(t, err, `f.yaml:5:27: bus.topics.shop.bills.replica: unknown setting "replica"; did you mean "replicas"?`)

	err = parse(file, "mem://").Check(t.Context(), inmemory.Driver{})
	require.EqualError(t, err, "f.yaml:4:5: bus.topics.shop.orders: the driver of mem: has no settings of topics, and does not know: replicas\n"+
		"f.yaml:5:5: bus.topics.shop.bills: the driver of mem: has no settings of topics, and does not know: replicas")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = parse(file, "mem://").Open(t.Context(), nil, inmemory.Driver{})
	require.ErrorContains(t, err, "has no settings of topics")
}

// A namingDriver records the topics whose settings it gets.
type namingDriver struct {
	settingsDriver
	names *[]string
}

func (d namingDriver) ConfigureTopic(topic string, _ map[string]string) (backend.Driver, error) {
	*d.names = append(*d.names, topic)
	return d, nil
}

// The settings of the driver for a topic with partitions are the settings of each of them.
func TestTopicSettingsOfPartitions(t *testing.T) {
	var none, names []string
	c, err := config.Parse("f.yaml", []byte("bus:\n  url: set://\n  topics:\n    orders: {replicas: 3, partitions: 2}\n"), nil)
	require.NoError(t, err)
	bus, err := c.Open(t.Context(), nil, namingDriver{settingsDriver{got: &none}, &names})
	require.NoError(t, err)
	defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
	require.Equal(t, []string{"orders.partition-0", "orders.partition-1"}, names)
	s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error { return nil })
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(s.Partitions()) == 2 }, 10*time.Second, time.Millisecond, "Open passes on the number")
}

func TestOpenErrorsSayWhere(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"rediss+cluster://u:hunter2@h", `f.yaml:2:8: bus.url: has the scheme "rediss+cluster", which no driver given to Open serves; did you mean redis+cluster:?`},
		{"mem:?max=1", `f.yaml:2:8: bus.url: inmemory: unknown parameter "max"; did you mean "max_bytes"?`},
		{"redis://u:hunter2@h:1?once_windo=1", `f.yaml:2:8: bus.url: redisstream: unknown parameter "once_windo"; did you mean "once_window"?`},
		{"nats://u:hunter2@h:1?once_windo=1", `f.yaml:2:8: bus.url: nats: unknown parameter "once_windo"; did you mean "once_window"?`},
		{"natz://u:hunter2@h:1", `f.yaml:2:8: bus.url: has the scheme "natz", which no driver given to Open serves; did you mean nats:?`},
	} {
		p, err := config.Parse("f.yaml", []byte("bus:\n  url: "+c.url), nil)
		require.NoError(t, err)
		_, err = p.Open(t.Context(), nil, drivers()...)
		require.EqualError(t, err, c.want)
	}
	_, _, err := config.Open(t.Context(), filepath.Join(t.TempDir(), "none.yaml"), nil)
	require.ErrorContains(t, err, "none.yaml: no such file or directory")
}

// Without drivers the error says so, and names the driver that the URL needs.
func TestNoDrivers(t *testing.T) {
	for url, want := range map[string]string{
		"'mem:'":              `has the scheme "mem", and no driver was given: add inmemory.Driver{}`,
		"bolt:events.db":      `has the scheme "bolt", and no driver was given: add bolt.Driver{}`,
		"redis://u:hunter2@h": `has the scheme "redis", and no driver was given: add redisstream.Driver{}`,
		"natz://u:hunter2@h":  `has the scheme "natz", and no driver was given`,
		"hunter2:x":           `has a scheme, not shown as it may be part of a secret, that no driver serves; there are none`,
	} {
		c, err := config.Parse("f.yaml", []byte("bus:\n  url: "+url), nil)
		require.NoError(t, err)
		err = c.Check(t.Context())
		require.EqualError(t, err, "f.yaml:2:8: bus.url: "+want)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		_, err = c.Open(t.Context(), nil)
		require.EqualError(t, err, "f.yaml:2:8: bus.url: "+want)
	}
}

func TestOpenRefusesNilDrivers(t *testing.T) {
	c, err := config.Parse("f.yaml", []byte("bus: {url: 'mem:'}"), nil)
	require.NoError(t, err)
	_, err = c.Open(t.Context(), nil, inmemory.Driver{}, nil)
	require.ErrorContains(t, err, "drivers[1] is nil")
}

// A file may name many topics, by a list or a pattern.
func TestManyTopics(t *testing.T) {
	cfg, err := config.Parse("f", []byte("bus: {url: 'mem:', subscriptions: {list: {topics: [shop.orders, 'shop.refunds.*'], group: g}, all: {topic: 'shop.>', group: g}}}"), nil)
	require.NoError(t, err)
	topic, o, err := cfg.Subscription("list")
	require.NoError(t, err)
	require.Empty(t, topic)
	require.Equal(t, []string{"shop.orders", "shop.refunds.*"}, o.Topics)
	text, err := cfg.DescribeSubscription("list")
	require.NoError(t, err)
	require.Contains(t, text, "shop.orders and shop.refunds.*, group g")
	require.Contains(t, text, ", then to the dead-letter topic of its topic;")
	topic, o, err = cfg.Subscription("all")
	require.NoError(t, err)
	require.Equal(t, "shop.>", topic)
	require.Nil(t, o.Topics)
}
