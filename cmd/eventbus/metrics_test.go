//go:build unix

package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// work serves the metrics of all its subscriptions.
func TestWorkServesMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errs safeBuffer
	ended := make(chan int, 1)
	args := []string{"work", "--config", configFile(t, workFile), "--exec", "true", "--metrics", "127.0.0.1:0"}
	go func() { ended <- run(ctx, []backend.Driver{sharedDriver{b.b}}, args, nil, io.Discard, &errs) }()
	address := regexp.MustCompile(`(?m)^metrics at (http://127\.0\.0\.1:\d+/metrics)$`)
	await(t, "it serves", func() bool { return address.MatchString(errs.String()) })
	for _, group := range []string{"audit", "billing"} {
		line := `eventbus_group_lag{messaging_consumer_group_name="` + group + `",messaging_destination_name="orders",messaging_system="eventbus"} 0`
		await(t, line, func() bool {
			return strings.Contains(scrape(t, address.FindStringSubmatch(errs.String())[1]), line+"\n")
		})
	}
	cancel()
	require.Zero(t, <-ended, errs.String())
}

// sub serves the metrics of its subscription while it runs.
func TestSubServesMetrics(t *testing.T) {
	b := newBench(t)
	b.ok(numbered(3), "pub", "orders")
	r := b.start("sub", "orders", "--group", "g", "--metrics", "127.0.0.1:0", "--backoff", "5ms", "--attempts", "2",
		"--exec", `case $EVENTBUS_ID in e-0) exit 65;; e-1) [ $EVENTBUS_ATTEMPT -gt 1 ];; esac`)
	await(t, "the group is there", func() bool { return len(b.groups("orders")) == 1 })
	b.settled("orders")
	address := regexp.MustCompile(`(?m)^metrics at (http://127\.0\.0\.1:\d+/metrics)$`).FindStringSubmatch(r.errs.String())
	require.Len(t, address, 2, r.errs.String())
	const labels = `messaging_consumer_group_name="g",messaging_destination_name="orders",messaging_system="eventbus"`
	for _, line := range []string{
		`eventbus_attempts_total{error_type="_OTHER",eventbus_event_type="t",eventbus_outcome="dead-letter",` + labels + `} 1`,
		`eventbus_attempts_total{error_type="_OTHER",eventbus_event_type="t",eventbus_outcome="retry",` + labels + `} 1`,
		`eventbus_attempts_total{eventbus_event_type="t",eventbus_outcome="acknowledge",` + labels + `} 2`,
		`eventbus_dead_letters_total{eventbus_reason="permanent",` + labels + `} 1`,
		`eventbus_queue_time_seconds_count{eventbus_event_type="t",` + labels + `} 3`,
		`eventbus_group_lag{` + labels + `} 0`,
		`eventbus_held_messages{` + labels + `} 0`,
	} {
		await(t, line, func() bool { return strings.Contains(scrape(t, address[1]), line+"\n") })
	}
	require.Zero(t, r.end().code)
	_, err := http.Get(address[1])
	require.Error(t, err, "nothing listens after the end")
}

// demo serves metrics while it reads its input.
func TestDemoServesMetrics(t *testing.T) {
	input, feed := io.Pipe()
	var out, errs safeBuffer
	ended := make(chan int, 1)
	go func() {
		defer input.Close() // or a write would wait for a demo that has ended
		ended <- run(t.Context(), drivers(), []string{"demo", "--input", "-", "--metrics", "127.0.0.1:0"}, input, &out, &errs)
	}()
	_, err := io.WriteString(feed, numbered(600)) // more than the demo publishes at once
	require.NoError(t, err, &errs)
	await(t, "events are counted", func() bool {
		address := regexp.MustCompile(`metrics at (http://\S+)`).FindStringSubmatch(errs.String())
		return len(address) == 2 && strings.Contains(scrape(t, address[1]), "messaging_client_sent_messages_total{")
	})
	feed.Close()
	require.Zero(t, <-ended, errs.String())
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	return string(text)
}

func TestSubRefusesAWrongMetricsAddress(t *testing.T) {
	r := newBench(t).run("", "sub", "orders", "--group", "g", "--metrics", "nowhere")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "eventbus: sub: --metrics: listen tcp: address nowhere: missing port in address")
}
