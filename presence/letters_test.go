package presence_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/presence"
)

func TestLettersOf(t *testing.T) {
	member := func(topic, group, letters string) presence.Process {
		return presence.Process{Subscriptions: []presence.Subscription{{Topic: topic, Group: group, Settings: map[string]string{"DeadLetter": letters}}}}
	}
	old := member("orders", "billing", "old")
	old.Silent = true
	gone := member("refunds", "billing", "refunds.failed")
	gone.Silent = true
	all := []presence.Process{
		old, member("orders", "billing", "failed"), member("orders", "mail", "the topic with .dlq"), member("orders", "audit", "(discard)"),
		member("shop.*", "billing", "shop.failed"), member("orders.dlq", "reports", "lost"),
		gone,
	}
	for _, c := range []struct{ topic, group, want string }{
		{"orders", "billing", "failed"},
		{"orders", "mail", "orders.dlq"},
		{"orders", "audit", "orders.dlq"},
		{"orders", "nobody", "orders.dlq"},
		{"refunds", "billing", "refunds.failed"},
		{"shop.carts", "billing", "shop.failed"},
		{"orders.dlq", "reports", "lost"},
		{"orders.dlq", "nobody", ""},
	} {
		require.Equal(t, c.want, presence.LettersOf(all, c.topic, c.group), "%s/%s", c.topic, c.group)
	}
}

func TestEventAt(t *testing.T) {
	all := []presence.Process{{}, {Subscriptions: []presence.Subscription{
		{Topic: "orders", Group: "mail", Events: []presence.Event{{Topic: "orders", Position: "7", Error: "no address"}}},
		{Topic: "orders", Group: "billing", Events: []presence.Event{{Topic: "orders", Position: "6"}, {Topic: "orders", Position: "7", Error: "no tax rate"}}},
	}}}
	e, ok := presence.EventAt(all, "orders", "billing", "7")
	require.True(t, ok)
	require.Equal(t, "no tax rate", e.Error)
	for _, other := range [][3]string{{"orders", "billing", "8"}, {"orders", "audit", "7"}, {"orders.partition-0", "billing", "7"}} {
		_, ok := presence.EventAt(all, other[0], other[1], other[2])
		require.False(t, ok)
	}
}
