package main

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/survey"
)

// A visitor asks a running console for pages.
type visitor struct {
	t    *testing.T
	base string
}

var consoleAddress = regexp.MustCompile(`(?m)^console at (http://\S+/), (.*)$`)

// serve starts the command serve.
func (b *bench) serve(args ...string) (visitor, *running) {
	b.t.Helper()
	r := b.start(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	await(b.t, "it serves", func() bool { return consoleAddress.MatchString(r.errs.String()) })
	return visitor{b.t, consoleAddress.FindStringSubmatch(r.errs.String())[1]}, r
}

func (v visitor) ask(path, host string) (int, string) {
	v.t.Helper()
	request, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.base+path, http.NoBody)
	require.NoError(v.t, err)
	request.Host = host
	answer, err := http.DefaultClient.Do(request)
	require.NoError(v.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(v.t, err)
	return answer.StatusCode, string(text)
}

// page returns a page that must exist.
func (v visitor) page(path string) string {
	v.t.Helper()
	path, _, _ = strings.Cut(path, "#")
	code, text := v.ask(path, "")
	require.Equal(v.t, http.StatusOK, code, "%s: %s", path, text)
	return text
}

// link returns the URL of the first link with this text; empty: there is none.
func link(page, text string) string {
	found := regexp.MustCompile(`<a [^>]*href="([^"]*)"[^>]*>` + regexp.QuoteMeta(text) + `</a>`).FindStringSubmatch(page)
	if found == nil {
		return ""
	}
	return html.UnescapeString(found[1])
}

// cells returns the cells with this label, from top to bottom.
func cells(page, label string) (all []string) {
	for _, m := range regexp.MustCompile(`(?s)data-label="`+label+`">(.*?)</t[dh]>`).FindAllStringSubmatch(page, -1) {
		all = append(all, html.UnescapeString(strings.TrimSpace(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[1], ""))))
	}
	return all
}

// The console shows the groups, events and dead letters of each backend.
func TestServe(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.ok("", "sub", "orders", "--group", "audit", "--idle-exit", "1ms")
		b.ok(numbered(60), "pub", "orders")
		b.failed(2, "sub", "orders", "--group", "billing", "--count", "58", "--exec", `case $EVENTBUS_ID in e-3|e-33) exit 65;; esac`)
		v, r := b.serve()
		page := v.page("")
		require.Equal(t, []string{"audit", "billing"}, slices.Sorted(slices.Values(cells(page, "Group"))))
		require.Contains(t, cells(page, "Lag"), "60")
		await(t, "the letters are counted", func() bool { page = v.page(""); return slices.Contains(cells(page, "Dead letters"), "2") })

		var ids []string
		for at := link(page, "orders"); at != ""; {
			page = v.page(at)
			ids = append(ids, cells(page, "Id")...)
			at = link(page, "Older events")
		}
		require.Len(t, ids, 60)
		for i, id := range ids {
			require.Equal(t, fmt.Sprint("e-", 59-i), id, "the newest first")
		}
		require.Equal(t, []string{"e-5", "e-12", "e-19", "e-26", "e-33", "e-40", "e-47", "e-54"}, cells(v.page("topic?name=orders&key=k-5"), "Id"))

		page = v.page("letters?topic=orders.dlq")
		require.Equal(t, []string{"permanent"}, cells(page, "Reason"))
		page = v.page(link(page, "2"))
		require.Equal(t, []string{"e-3", "e-33"}, cells(page, "Id"))
		page = v.page(link(page, cells(page, "Position")[1]))
		require.Contains(t, page, "Why it failed")
		require.Contains(t, html.UnescapeString(page), `"n": 33`)
		require.Zero(t, r.end().code)
	})
}

// A real member of a topic with partitions, and its figures.
func TestServePartitions(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		bus, err := eventbus.New(sharedBackend{b.b}, eventbus.Options{Service: "test", Observer: unexpected(io.Discard), Topics: map[string]eventbus.TopicOptions{"parts": {Partitions: 3}}})
		require.NoError(t, err)
		defer bus.Shutdown(t.Context())
		release, end := context.WithCancel(t.Context())
		defer end()
		sub, err := bus.Subscribe(t.Context(), "parts", eventbus.SubscribeOptions{Group: "g", Concurrency: 4}, func(ctx context.Context, _ *eventbus.Delivery) error {
			select {
			case <-release.Done():
			case <-ctx.Done():
			}
			return nil
		})
		require.NoError(t, err)
		for i := range 10 {
			require.NoError(t, bus.Publish(t.Context(), "parts", &eventbus.Event{Key: fmt.Sprint(i)}))
		}
		await(t, "the member owns all partitions", func() bool { return len(sub.Partitions()) == 3 })
		v, _ := b.serve()
		var page string
		await(t, "the figures are those of the subscription", func() bool {
			stats, err := sub.Stats(t.Context())
			require.NoError(t, err)
			page = v.page("")
			for label, n := range map[string]int64{"Lag": stats.Lag, "In flight": stats.InFlight, "Delayed": stats.Delayed, "Members": stats.Members} {
				if !slices.Equal(cells(page, label), []string{survey.Count(n).String()}) {
					return false
				}
			}
			return stats.Lag < 10 && slices.Equal(cells(page, "Group"), []string{"g"}) && cells(page, "Topic")[0] == "parts"
		})
		group := v.page(link(page, "g"))
		require.Equal(t, []string{"0", "1", "2"}, cells(group, "Partition"))
		await(t, "the owner lives", func() bool {
			group = v.page(link(page, "g"))
			return slices.Equal(cells(group, "State"), []string{"lives"}) && slices.Equal(cells(group, "Partitions"), []string{"0-2"})
		})
		require.Contains(t, cells(group, "Member")[0], "test@", "a member without an instance has the name of its service and machine")
		require.NotEmpty(t, cells(v.page(link(page, "parts")), "Id"))
	})
}

// The broker dies while a page is open, and comes back.
func TestServeThroughAnOutage(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			server := k.start(t)
			b := &bench{t: t, b: openBackend(t, k.driver, server.URL())}
			b.ok(numbered(3), "pub", "orders")
			b.ok("", "groups", "create", "orders", "billing", "--start", "earliest")
			v, r := b.serve()
			require.Equal(t, []string{"3"}, cells(v.page(""), "Lag"))
			server.Kill()
			await(t, "the page says so", func() bool { return strings.Contains(v.page(""), `class="outage">The figures are of `) })
			require.Equal(t, []string{"billing"}, cells(v.page(""), "Group"), "the last figures stay")
			began := time.Now()
			code, page := v.ask("topic?name=orders", "")
			require.Equal(t, http.StatusServiceUnavailable, code)
			require.Contains(t, page, "The broker does not answer.")
			require.Less(t, time.Since(began), 10*time.Second)
			server.Run()
			await(t, "the figures are new", func() bool { return !strings.Contains(v.page(""), `class="outage"`) })
			require.Zero(t, r.end().code)
		})
	}
}

func TestServeListensOnThisMachine(t *testing.T) {
	b := newBench(t)
	v, r := b.serve("--host", "bus.example.com")
	require.Contains(t, r.errs.String(), "for this machine only\n")
	for host, want := range map[string]int{"": http.StatusOK, "localhost": http.StatusOK, "bus.example.com:8080": http.StatusOK, "evil.example": http.StatusMisdirectedRequest} {
		code, _ := v.ask("", host)
		require.Equal(t, want, code, host)
	}
	r.end()
	_, err := http.Get(v.base)
	require.Error(t, err, "nothing listens after the end")

	all := b.start("serve", "--listen", "0.0.0.0:0")
	await(t, "it serves", func() bool { return consoleAddress.MatchString(all.errs.String()) })
	require.Contains(t, all.errs.String(), "for everybody who reaches this address: there is no sign-in\n")
	require.Zero(t, all.end().code)
}

func TestServeHidesPayloads(t *testing.T) {
	b := newBench(t)
	const secret = `{"id":"e-1","headers":{"token":"hunter2"},"data":{"card":4111}}`
	b.ok(secret, "pub", "orders")
	b.failed(1, "sub", "orders", "--group", "billing", "--idle-exit", "200ms", "--exec", "exit 65")
	b.ok(secret, "pub", "orders")
	v, _ := b.serve("--hide-payloads")
	for _, topic := range []string{"orders.dlq", "orders"} {
		page := v.page("topic?name=" + topic + "&order=oldest")
		require.NotEmpty(t, cells(page, "Position"))
		for _, position := range cells(page, "Position") {
			event := v.page(link(page, position))
			require.NotContains(t, page+event, "4111")
			require.NotContains(t, page+event, "hunter2")
			require.Equal(t, topic == "orders.dlq", strings.Contains(event, "permanent"))
		}
	}
}

func TestServeRefusesWrongFlags(t *testing.T) {
	b := newBench(t)
	for want, args := range map[string][]string{
		"serve: --listen: listen tcp: address nowhere: missing port": {"--listen", "nowhere"},
		"serve: --listen is empty":                                   {"--listen", ""},
		`serve: unexpected argument "orders"`:                        {"orders"},
	} {
		r := b.run("", append([]string{"serve"}, args...)...)
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stderr, want)
	}
	b.b = silent{Backend: b.mem, err: backend.ErrUnavailable}
	require.Contains(t, b.run("", "serve", "--listen", "127.0.0.1:0").stderr, "serve: unavailable")
}
