package pattern_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/pattern"
)

func TestMatch(t *testing.T) {
	for _, row := range []struct{ pattern, yes, no string }{
		{"orders", "orders", "order orders.eu Orders"},
		{"orders.*", "orders.eu orders.us", "orders orders.eu.north refunds.eu orders.dlq orders.later orders.lifecycle orders.replies"},
		{"orders.>", "orders.eu orders.eu.north", "orders ordersx.eu orders.eu.dlq orders.dlq orders.eu.later orders.eu.later.token orders.eu.north.lifecycle"},
		{"*.eu", "orders.eu refunds.eu dlq.eu later.eu", "eu orders.us a.b.eu"},
		{"*.*.placed", "eu.orders.placed", "orders.placed eu.orders.placed.x eu.dlq.placed"},
		{">", "orders orders.eu dlq", "orders.dlq orders.later"},
		{"*", "orders dlq", "orders.eu"},
		{"orders.*.dlq", "orders.eu.dlq", "orders.eu orders.dlq orders.dlq.dlq"},
		{"orders.dlq.>", "orders.dlq.x", "orders.dlq orders.dlq.dlq"},
		{"orders.*.>", "orders.eu.north orders.eu.north.a", "orders.eu orders orders.eu.dlq"},
	} {
		for _, topic := range strings.Fields(row.yes) {
			require.True(t, pattern.Match(row.pattern, topic), "%s matches %s", row.pattern, topic)
		}
		for _, topic := range strings.Fields(row.no) {
			require.False(t, pattern.Match(row.pattern, topic), "%s does not match %s", row.pattern, topic)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, s := range []string{"orders", "orders.*", "orders.>", "*", ">", "*.*.x", "a.*.>"} {
		require.NoError(t, pattern.Check(s), s)
	}
	for s, why := range map[string]string{
		"": "empty", "orders.>.eu": "before its last part", "orders.e*": "beside other characters", "orders.**": "beside other characters",
		"orders..*": "empty token", ".>": "empty token", "orders.é": "contains", strings.Repeat("a", 201): "201 bytes",
	} {
		require.ErrorContains(t, pattern.Check(s), why, s)
	}
}

func TestOverlap(t *testing.T) {
	for _, row := range []struct {
		x, y string
		yes  bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a.*", "a.b", true},
		{"a.*", "a.b.c", false},
		{"a.*", "*.b", true},
		{"a.*", "b.*", false},
		{"a.>", "a.*", true},
		{"a.>", "*.b.c", true},
		{"a.b.>", "a.*", false},
		{"a.>", "a", false},
		{"a.>", "a.b.dlq", false},
	} {
		require.Equal(t, row.yes, pattern.Overlap(row.x, row.y), "%s and %s", row.x, row.y)
		require.Equal(t, row.yes, pattern.Overlap(row.y, row.x), "%s and %s", row.y, row.x)
	}
}
