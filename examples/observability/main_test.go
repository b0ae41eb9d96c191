package main

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

var update = flag.Bool("update", false, "write docs/telemetry.svg")

const lifeTree = `trace:
POST /checkout  TIME
└─ publish orders-NEW  TIME
   ├─ process orders-NEW  ✗ the bank is closed  group=billing  attempt=1  error=bank-closed  TIME
   │  └─ retry orders-NEW  group=billing  attempt=1  delay=TIME  TIME
   ├─ process orders-NEW  ✗ the bank is closed  group=billing  attempt=2  error=bank-closed  TIME
   │  ├─ dead-letter orders-NEW  group=billing  attempt=2  reason=exhausted  to=orders-NEW.dlq  TIME
   │  └─ acknowledge orders-NEW  group=billing  TIME
   └─ redrive orders-NEW  TIME
      └─ process orders-NEW  group=billing  attempt=1  TIME
         └─ acknowledge orders-NEW  group=billing  TIME
`

// The program prints the trace of an event, and its metrics, on each broker.
func TestLife(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"memory": func(*testing.T) string { return "mem:" },
		"redis":  func(t *testing.T) string { return redistest.Start(t).URL() },
		"nats":   func(t *testing.T) string { return natstest.Start(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, run(t.Context(), []string{"-url", url(t)}, &out))
			text := regexp.MustCompile(`orders-[0-9a-f]{8}`).ReplaceAllString(out.String(), "orders-NEW")
			tree, metrics, _ := strings.Cut(text, "\nmetrics:\n")
			tree = regexp.MustCompile(`(delay=| {2})[0-9.]+(µs|ms|s)\b`).ReplaceAllString(tree, "${1}TIME")
			require.Equal(t, lifeTree, tree)
			require.Contains(t, metrics, `eventbus_dead_letters_total{eventbus_reason="exhausted",messaging_consumer_group_name="billing",messaging_destination_name="orders-NEW"} 1`)
			require.Contains(t, metrics, `eventbus_group_lag{messaging_consumer_group_name="billing",messaging_destination_name="orders-NEW"} 0`)
		})
	}
}

// The metrics show the outage: failures begin with it and end soon after, the backlog grows
// and is worked off, and only events of its first seconds become dead letters.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seconds, err := outage(t.Context())
		require.NoError(t, err)
		require.Len(t, seconds, 120)
		var before, during, after second
		for i, s := range seconds {
			at := time.Duration(i) * time.Second
			part := &before
			switch {
			case at >= downUntil+20*time.Second:
				part = &after
			case at >= downFrom:
				part = &during
			}
			part.handled += s.handled
			part.failed += s.failed
			part.dead += s.dead
			part.backlog = max(part.backlog, s.backlog)
		}
		require.InDelta(t, 600, before.handled, 10)
		require.Equal(t, second{handled: before.handled, backlog: before.backlog}, before, "no failure before the outage")
		require.Less(t, before.backlog, 10.0)
		require.Greater(t, during.failed, 600.0)
		require.InDelta(t, 20*15, during.dead, 100, "an event is tried for 15 seconds")
		require.Greater(t, during.backlog, 200.0)
		require.Zero(t, after.failed)
		require.Zero(t, after.dead)
		require.Less(t, after.backlog, 10.0)
		if *update {
			require.NoError(t, os.WriteFile("../../docs/telemetry.svg", []byte(draw(seconds)), 0o644))
		}
	})
	picture, err := os.ReadFile("../../docs/telemetry.svg")
	require.NoError(t, err)
	for _, c := range curves {
		require.Contains(t, string(picture), c.title, "redraw it: go test -run TestOutage -update")
	}
}
