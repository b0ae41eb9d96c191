package config

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
)

// A subscription inherits each key that it does not have, at any depth, and its own keys win.
func TestDefaults(t *testing.T) {
	c, err := Parse("f", []byte(`bus:
  url: "mem:"
  timeout: 9s
  defaults:
    concurrency: 4
    order: none
    timeout: ${TIMEOUT}
    leave_timeouts: true
    retry: {attempts: 5, backoff: 2s..1m, rules: {panic: {attempts: 1, discard: true}}}
    limits: {rate: 10/s}
  subscriptions:
    plain: {topic: a, group: g}
    own: {topic: b, group: g, concurrency: 8, order: by-key, leave_timeouts: false, timeout: none, retry: {attempts: 7, rules: {panic: {attempts: 2}, timeout: {attempts: 3}}}}
`), []string{"TIMEOUT=7s"})
	require.NoError(t, err)
	_, plain, err := c.Subscription("plain")
	require.NoError(t, err)
	require.Equal(t, 4, plain.Concurrency)
	require.Equal(t, eventbus.Unordered, plain.Order)
	require.Equal(t, 7*time.Second, plain.Timeout)
	require.True(t, plain.LeaveTimeouts)
	require.Equal(t, []eventbus.RetryRule{{Class: "panic", MaxAttempts: 1, Discard: true}}, plain.Retry.Rules)
	require.NotNil(t, plain.Limiter)

	_, own, err := c.Subscription("own")
	require.NoError(t, err)
	require.Equal(t, 8, own.Concurrency)
	require.Equal(t, eventbus.OrderByKey, own.Order, "a value that is the default of the bus wins too")
	require.Equal(t, time.Duration(-1), own.Timeout)
	require.False(t, own.LeaveTimeouts)
	require.Equal(t, 7, own.Retry.MaxAttempts)
	require.Equal(t, time.Minute, own.Retry.Max)
	require.Equal(t, []eventbus.RetryRule{{Class: "panic", MaxAttempts: 2, Discard: true}, {Class: "timeout", MaxAttempts: 3}}, own.Retry.Rules)
	require.NotNil(t, own.Limiter)
	require.Len(t, c.rates, 2, "each subscription has a rate of its own")

	words, err := c.DescribeSubscription("plain")
	require.NoError(t, err)
	require.Contains(t, words, "4 at a time, in no order")
}

// Each key of a subscription but topic, topics and group may be a default.
func TestKeysOfDefaults(t *testing.T) {
	keys := func(of reflect.Type) (list []string) {
		for _, f := range fields(of) {
			list = append(list, f.key)
		}
		return list
	}
	want := slices.DeleteFunc(keys(reflect.TypeFor[subscription]()), func(key string) bool { return slices.Contains(keysWithoutDefault, key) })
	require.Equal(t, want, keys(reflect.TypeFor[defaults]()))
	require.Len(t, keys(reflect.TypeFor[subscription]()), len(want)+len(keysWithoutDefault))
}

// A mistake in the defaults is reported once, where it is. A contradiction names the subscription.
func TestMistakesInDefaults(t *testing.T) {
	for _, row := range []struct{ defaults, subscription, want string }{
		{"{lease: 30}", "", `f:3:21: bus.defaults.lease: "30": missing unit, such as 30s`},
		{"{timeout: 0s}", "", `f:3:23: bus.defaults.timeout: "0s": less than 1ms; for none write none`},
		{"{group: g}", "", `f:3:14: bus.defaults: unknown key "group"`},
		{"{concurency: 3}", "", `f:3:14: bus.defaults: unknown key "concurency"; did you mean concurrency?`},
		{"[a]", "", `f:3:13: bus.defaults: is a list; it must have keys below it`},
		{"{concurrency: 8}", ", max_in_flight: 4", `f:6:44: bus.subscriptions.a.max_in_flight: is 4, less than concurrency, 8`},
		{"{max_in_flight: 4}", ", concurrency: 8", `f:3:29: bus.subscriptions.a.max_in_flight: is 4, less than concurrency, 8`},
	} {
		file := "bus:\n  url: 'mem:'\n  defaults: " + row.defaults + "\n  service: x\n  subscriptions:\n    a: {topic: t, group: g" + row.subscription + "}\n    b: {topic: t, group: h}\n"
		_, err := Parse("f", []byte(file), nil)
		require.Error(t, err, row.defaults)
		require.EqualError(t, err, row.want)
	}
}

// Aliases share nodes, so a merge changes none of them.
func TestDefaultsWithAliases(t *testing.T) {
	c, err := Parse("f", []byte(`bus:
  url: "mem:"
  defaults: {retry: {attempts: 5}}
  subscriptions:
    a: &a {topic: t, group: g, retry: &r {jitter: 0.1}}
    b: {<<: *a, group: h, retry: {<<: *r, attempts: 6}}
    c: *a
`), nil)
	require.NoError(t, err)
	for name, want := range map[string]int{"a": 5, "b": 6, "c": 5} {
		_, o, err := c.Subscription(name)
		require.NoError(t, err)
		require.Equal(t, want, o.Retry.MaxAttempts, name)
		require.InDelta(t, 0.1, o.Retry.Jitter, 0)
	}
}
