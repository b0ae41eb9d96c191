package config_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/config"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// limited returns the configuration of a subscription with these limits.
func limited(limits string) string {
	return fmt.Sprintf("bus:\n  url: 'mem:'\n  subscriptions:\n    s: {topic: t, group: g, concurrency: 16, limits: %s}\n", limits)
}

// The limits of a file limit a subscription: the rate, the places of an adaptive limiter,
// and a breaker, which the state of the subscription shows.
func TestLimitsOfAFile(t *testing.T) {
	for _, c := range []struct {
		limits string
		fails  bool
		least  int64 // runs within ten seconds, if each handler takes one second
		most   int64
		state  observer.State
	}{
		{"{}", false, 160, 160, observer.Running},
		{"{rate: 60/m, burst: 5}", false, 14, 15, observer.Running},
		{"{rate: 2/s}", false, 20, 22, observer.Running},
		{"{adaptive: {max: 1}}", false, 9, 10, observer.Running},
		{"{breaker: {failures: 10%, runs: 16, pause: 1h}}", true, 16, 40, observer.Limited},
	} {
		t.Run(c.limits, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, err := config.Parse("f", []byte(limited(c.limits)), nil)
				require.NoError(t, err)
				bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
				for range 200 {
					require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
				}
				var runs atomic.Int64
				s, err := cfg.Subscribe(t.Context(), bus, "s", func(ctx context.Context, _ *eventbus.Delivery) error {
					runs.Add(1)
					time.Sleep(time.Second)
					if c.fails {
						return eventbus.Permanent(fmt.Errorf("down"))
					}
					return nil
				})
				require.NoError(t, err)
				time.Sleep(10*time.Second - time.Millisecond)
				synctest.Wait()
				state, err := s.State()
				require.Equal(t, c.state, state, err)
				require.GreaterOrEqual(t, runs.Load(), c.least, "runs")
				require.LessOrEqual(t, runs.Load(), c.most, "runs")
				require.NoError(t, s.Drain(t.Context()))
			})
		})
	}
}

// Subscriptions share the rate of one of them.
func TestSharedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := config.Parse("f", []byte(`
bus:
  url: "mem:"
  subscriptions:
    s: {topic: t, group: s, limits: {rate: 10/s, burst: 1}}
    u: {topic: t, group: u, limits: {rate_of: s}}
`), nil)
		require.NoError(t, err)
		words, err := cfg.DescribeSubscription("u")
		require.NoError(t, err)
		require.Contains(t, words, "; reads at the rate of s, which shares it; at most 1,024 events")
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		for range 1000 {
			require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		}
		var runs [3]atomic.Int64
		for i, name := range []string{"s", "u", "s"} {
			_, err := cfg.Subscribe(t.Context(), bus, name, func(context.Context, *eventbus.Delivery) error {
				runs[i].Add(1)
				return nil
			})
			require.NoError(t, err)
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		all := runs[0].Load() + runs[1].Load() + runs[2].Load()
		require.InDelta(t, 1000, all, 4)
		require.Greater(t, runs[1].Load(), int64(200), "each reader takes its turn by chance")
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// Mistakes in limits name their place and the reason.
func TestMistakesInLimits(t *testing.T) {
	for limits, want := range map[string]string{
		"{rate: 100}":                                "limits.rate: \"100\": not a number of events in a time, such as 100/s, 30/m or 5/h",
		"{rate: 0/s}":                                "limits.rate: \"0/s\": not above 0 and at most 2147483647/s",
		"{rate: 1/d}":                                "limits.rate: \"1/d\": not a number of events in a time, such as 100/s, 30/m or 5/h",
		"{burst: 5}":                                 "limits.burst: is given without a rate",
		"{rate_of: u}":                               "limits.rate_of: is no subscription with a rate",
		"{rate_of: s}":                               "limits.rate_of: is no subscription with a rate",
		"{rate_of: s, rate: 1/s}":                    "limits.rate_of: is given beside a rate",
		"{adaptive: {min: 3}}":                       "limits.adaptive: max is missing",
		"{adaptive: {min: 3, max: 2}}":               "limits.adaptive.max: is less than min",
		"{breaker: {pause: 1s}}":                     "limits.breaker: failures is missing",
		"{breaker: {failures: 0.5}}":                 "limits.breaker.failures: \"0.5\": not a percentage, such as 50%",
		"{breaker: {failures: 101%}}":                "limits.breaker.failures: \"101%\": not above 0% and at most 100%",
		"{breaker: {failures: 50%, pauze: 1s}}":      "limits.breaker: unknown key \"pauze\"; did you mean pause?",
		"{redelivered: 16}":                          "limits.redelivered: is 16, which is not less than concurrency, 16",
		"{breaker: {failures: 50%}, adaptive: fast}": "limits.adaptive: is a text; it must have keys below it",
	} {
		_, err := config.Parse("f", []byte(limited(limits)), nil)
		require.ErrorContains(t, err, "f:4:", limits)
		require.ErrorContains(t, err, want, limits)
	}
}

// An open breaker grants no read, not even one that is waiting for another limit when it opens.
func TestOpenBreakerReadsNothing(t *testing.T) {
	for _, other := range []string{"rate: 5/s, burst: 10", "adaptive: {min: 10, max: 10}"} {
		synctest.Test(t, func(t *testing.T) {
			cfg, err := config.Parse("f", []byte(limited("{"+other+", breaker: {failures: 50%, runs: 5, pause: 1m}}")), nil)
			require.NoError(t, err)
			_, o, err := cfg.Subscription("s")
			require.NoError(t, err)
			g, err := o.Limiter.Acquire(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, 10, g.Messages)
			o.Limiter.Fill(g, 10, 10)
			time.AfterFunc(50*time.Millisecond, func() { o.Limiter.Release(limiter.Released{Settled: 5, Runs: 5, Failed: 5}) })
			_, err = o.Limiter.Acquire(t.Context(), 10)
			var wait *limiter.WaitError
			require.ErrorAs(t, err, &wait, other)
		})
	}
}

// The limits are explained in words.
func TestLimitsInWords(t *testing.T) {
	cfg, err := config.Parse("f", []byte(limited("{rate: 90/m, redelivered: 4, adaptive: {max: 64}, breaker: {failures: 50%, pause: 1m}}")), nil)
	require.NoError(t, err)
	got, err := cfg.DescribeSubscription("s")
	require.NoError(t, err)
	require.Contains(t, got, "; at most 1.5 events a second are read, 2 at once; at most 4 redelivered at a time; "+
		"1 to 64 events held, fewer while runs fail or take longer; "+
		"nothing is read for 1m when 50% of at least 10 runs within 10s fail; at most 1,024 events")

	cfg, err = config.Parse("f", []byte(limited("{rate: 100/m, breaker: {failures: 7%}}")), nil)
	require.NoError(t, err)
	got, err = cfg.DescribeSubscription("s")
	require.NoError(t, err)
	require.Contains(t, got, "at most 1.66667 events a second")
	require.Contains(t, got, "when 7% of")
}
