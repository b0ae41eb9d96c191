package presence_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/presence"
)

// Settings has each field of SubscribeOptions, including those that later versions add.
func TestSettingsHasEachField(t *testing.T) {
	o := eventbus.SubscribeOptions{
		Limiter: limiter.MaxInFlight(1), OnDeadLetter: func(*eventbus.Event, eventbus.DeadLetter) {},
		Retry: eventbus.Retry{
			Delay: func(*eventbus.Delivery, error) time.Duration { return 0 },
			Rules: []eventbus.RetryRule{{Class: "timeout", MaxAttempts: 2, Discard: true}},
		},
		Timeout: 90 * time.Second, Order: eventbus.OrderTotal, OnFailure: eventbus.FailAll, Ack: eventbus.AckOnReceive,
	}
	all := presence.Settings(o)
	require.Equal(t, "1m30s", all["Timeout"])
	require.Equal(t, "total", all["Order"])
	require.Equal(t, "fail-all", all["OnFailure"])
	require.Equal(t, "on-receive", all["Ack"])
	require.Equal(t, "earliest", all["Start"])
	require.Equal(t, "set", all["Retry.Delay"])
	require.Equal(t, "set", all["OnDeadLetter"])
	require.Contains(t, all["Limiter"], "limiter.")
	require.Equal(t, "2", all["Retry.Rules.timeout.MaxAttempts"])
	require.Equal(t, "true", all["Retry.Rules.timeout.Discard"])
	require.NotContains(t, all, "Retry.Rules.timeout.Max")
	typ := reflect.TypeFor[eventbus.SubscribeOptions]()
	for i := range typ.NumField() {
		switch f := typ.Field(i); {
		case f.Name == "Group", f.Name == "Topics", f.Name == "Retry", !f.IsExported():
			require.NotContains(t, all, f.Name)
		default:
			require.Contains(t, all, f.Name)
		}
	}
	// Two processes state the same settings.
	require.Equal(t, all, presence.Settings(o))
}

func process(name string, silent bool, subscriptions ...presence.Subscription) presence.Process {
	return presence.Process{ID: name, Name: name, Silent: silent, Subscriptions: subscriptions}
}

func billing(settings ...string) presence.Subscription {
	s := presence.Subscription{Topic: "orders", Group: "billing", Settings: map[string]string{"Lease": "30s"}}
	for i := 0; i < len(settings); i += 2 {
		s.Settings[settings[i]] = settings[i+1]
	}
	return s
}

// The settings in which members differ are told with the processes of each value.
func TestCompare(t *testing.T) {
	audit := billing("Retry.MaxAttempts", "1")
	audit.Group = "audit"
	for name, c := range map[string]struct {
		processes []presence.Process
		want      []string
	}{
		"alike": {[]presence.Process{process("a", false, billing()), process("b", false, billing())}, nil},
		"other group": {
			[]presence.Process{process("a", false, billing("Retry.MaxAttempts", "2")), process("b", false, audit)}, nil,
		},
		"silent": {
			[]presence.Process{process("a", false, billing()), process("b", true, billing("Lease", "1m0s"))}, nil,
		},
		"most first": {
			[]presence.Process{process("b", false, billing("Lease", "1m0s")), process("c", false, billing()), process("a", false, billing())},
			[]string{"orders/billing: Lease is 30s in a and c, and 1m0s in b"},
		},
		"not set": {
			[]presence.Process{process("a", false, billing("OnDeadLetter", "set")), process("b", false, billing())},
			[]string{"orders/billing: OnDeadLetter is not set in b, and set in a"},
		},
		"two members of one process": {
			[]presence.Process{process("a", false, billing(), billing("Lease", "1m0s"))},
			[]string{"orders/billing: Lease is 1m0s in a, and 30s in a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range presence.Compare(c.processes) {
				if s.Differs() {
					require.False(t, s.Sizes())
					got = append(got, s.String())
				}
			}
			require.Equal(t, c.want, got)
		})
	}
	two := presence.Compare([]presence.Process{{ID: "1234-5", Name: "a", Subscriptions: []presence.Subscription{billing()}}, {ID: "6789-0", Name: "a", Subscriptions: []presence.Subscription{billing("Lease", "1s")}}})
	require.Equal(t, "orders/billing: Lease is 1s in a#6789, and 30s in a#1234", two[0].String())
	some := presence.Compare([]presence.Process{process("a", false, billing("Concurrency", "1")), process("b", false, billing("Concurrency", "8"))})
	require.Len(t, some, 2)
	require.Equal(t, "Concurrency", some[0].Name)
	require.True(t, some[0].Differs())
	require.True(t, some[0].Sizes())
	require.False(t, some[1].Differs())
}
