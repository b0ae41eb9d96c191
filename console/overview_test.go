package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/console"
)

func TestOverview(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		p := visit(t, m, console.Options{}).page("")
		rows := p.cells("Groups")
		require.Len(t, rows, 3)
		require.Equal(t, map[string]string{
			"Topic": "orders", "Group": "audit", "Status": "paused until somebody resumes it, by ann: the bank is closed", "Lag": "60", "Last 15 minutes": "", "Oldest": "0s",
			"In flight": "0", "Delayed": "0", "Dead letters": "0", "Members": "1",
		}, rows[0], "a group that does not keep up is first")
		require.Equal(t, "billing", rows[1]["Group"])
		require.Equal(t, "58", rows[1]["Lag"])
		require.Equal(t, "2", rows[1]["In flight"])
		require.Equal(t, "4", rows[1]["Dead letters"])
		require.Equal(t, map[string]string{
			"Topic": "parts", "Group": "g", "Status": "ok", "Lag": "6", "Last 15 minutes": "", "Oldest": "0s",
			"In flight": "0", "Delayed": "0", "Dead letters": "0", "Members": "1",
		}, rows[2], "partitions are one topic")
		require.Equal(t, []map[string]string{{"Topic": "orders.dlq", "Dead letters": "4", "Classes": "2"}}, p.cells("Dead-letter topics"))
		require.NotEmpty(t, p.link("logs"), "a topic without a group is listed")
		require.Contains(t, p.all("svg")[0].attrs["aria-label"], "lag in the last 15 minutes: now 60")
	})
}

func TestTheOverviewIsFiltered(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		for query, want := range map[string][]string{
			"?q=BILL": {"billing"}, "?q=orders": {"audit", "billing"}, "?status=paused": {"audit"}, "?status=stuck": nil, "?q=a&status=ok": {"g"}, "?first=2": {"g"}, "?first=x": {"audit", "billing", "g"},
		} {
			var got []string
			for _, row := range v.page(query).cells("Groups") {
				got = append(got, row["Group"])
			}
			require.Equal(t, want, got, query)
		}
		require.Equal(t, "./?status=paused", v.page("").link("1 paused"))
	})
}

func TestTheOverviewHasPages(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		for i := range 450 {
			attach(t, m, "orders", fmt.Sprintf("group%03d", i))
		}
		v := visit(t, m, console.Options{})
		seen := map[string]bool{}
		url, n := "", 0
		for ; n == 0 || url != ""; n++ {
			p := v.page(url)
			for _, row := range p.cells("Groups") {
				require.False(t, seen[row["Group"]])
				seen[row["Group"]] = true
			}
			url = strings.TrimPrefix(p.link("More groups"), "./")
		}
		require.Len(t, seen, 450)
		require.Equal(t, 3, n)
	})
}

func TestUnknownIsNotZero(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *countingBackend) {
		p := visit(t, knowsLittle{}, console.Options{}).page("")
		require.Equal(t, "the lag is unknown", p.all("svg")[0].attrs["aria-label"])
		row := p.cells("Groups")[0]
		for _, figure := range []string{"Status", "Lag", "Oldest", "In flight", "Delayed", "Dead letters", "Members"} {
			require.Equal(t, "unknown", row[figure], figure)
		}
	})
}
