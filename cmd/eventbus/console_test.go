package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/observer"
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

// page returns a page that must exist. On a busy machine a broker may not answer within the time of a
// request. The page then says so with 503, and like a person, page asks again.
func (v visitor) page(path string) string {
	v.t.Helper()
	path, _, _ = strings.Cut(path, "#")
	code, text := v.ask(path, "")
	for range 3 {
		if code == http.StatusServiceUnavailable {
			code, text = v.ask(path, "")
		}
	}
	require.Equal(v.t, http.StatusOK, code, "%s: %s", path, text)
	return text
}

// link returns the URL of the first link with this text, or "" if there is none.
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
	onEachAtOnce(t, func(t *testing.T, b *bench) {
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
			ids = append(ids, cells(page, "ID")...)
			at = link(page, "Older events")
		}
		require.Len(t, ids, 60)
		for i, id := range ids {
			require.Equal(t, fmt.Sprint("e-", 59-i), id, "the newest first")
		}
		require.Equal(t, []string{"e-5", "e-12", "e-19", "e-26", "e-33", "e-40", "e-47", "e-54"}, cells(v.page("topic?name=orders&key=k-5"), "ID"))

		page = v.page("letters?topic=orders.dlq")
		require.Equal(t, []string{"permanent"}, cells(page, "Reason"))
		page = v.page(link(page, "2"))
		require.Equal(t, []string{"e-3", "e-33"}, cells(page, "ID"))
		page = v.page(link(page, cells(page, "Position")[1]))
		require.Contains(t, page, "Why it failed")
		require.Contains(t, html.UnescapeString(page), `"n": 33`)
		require.Zero(t, r.end().code)
	})
}

// A real member of a topic with partitions, and its numbers.
func TestServePartitions(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		bus, err := eventbus.New(sharedBackend{b.b}, eventbus.Options{Service: "test", Observer: logProblems(io.Discard), Topics: map[string]eventbus.TopicOptions{"parts": {Partitions: 3}}})
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
		await(t, "the numbers are those of the subscription", func() bool {
			stats, err := sub.Stats(t.Context())
			require.NoError(t, err)
			page = v.page("")
			for label, n := range map[string]int64{"Lag": stats.Lag, "In flight": stats.InFlight, "Delayed": stats.Delayed, "Members": stats.Members} {
				if !slices.Equal(cells(page, label), []string{groupstats.Count(n).String()}) {
					return false
				}
			}
			return stats.Lag < 10 && slices.Equal(cells(page, "Group"), []string{"g"}) && cells(page, "Topic")[0] == "parts"
		})
		group := v.page(link(page, "g"))
		require.Equal(t, []string{"0", "1", "2"}, cells(group, "Partition"))
		await(t, "the owner lives", func() bool {
			group = v.page(link(page, "g"))
			return slices.Equal(cells(group, "State"), []string{"alive"}) && slices.Equal(cells(group, "Partitions"), []string{"0-2"})
		})
		require.Contains(t, cells(group, "Member")[0], "test@", "a member without an instance has the name of its service and machine")
		require.NotEmpty(t, cells(v.page(link(page, "parts")), "ID"))
	})
}

// The broker dies while a page is open, and comes back.
func TestServeThroughAnOutage(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			server := k.start(t)
			b := &bench{t: t, b: openBackend(t, k.driver, server.URL())}
			b.ok(numbered(3), "pub", "orders")
			b.ok("", "groups", "create", "orders", "billing", "--start", "earliest")
			v, r := b.serve()
			require.Equal(t, []string{"3"}, cells(v.page(""), "Lag"))
			server.Kill()
			await(t, "the page says so", func() bool { return strings.Contains(v.page(""), `class="outage">Last updated `) })
			require.Equal(t, []string{"billing"}, cells(v.page(""), "Group"), "the last numbers stay")
			began := time.Now()
			code, page := v.ask("topic?name=orders", "")
			require.Equal(t, http.StatusServiceUnavailable, code)
			require.Contains(t, page, "The broker does not respond.")
			require.Less(t, time.Since(began), 10*time.Second)
			server.Run()
			await(t, "the numbers are new", func() bool { return !strings.Contains(v.page(""), `class="outage"`) })
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
	require.Contains(t, all.errs.String(), "for everybody who can reach this address: there is no sign-in\n")
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

// submit posts the form with this id, with some other fields, as a browser does. It returns the next page.
func (v visitor) submit(client *http.Client, page, id string, more ...string) string {
	v.t.Helper()
	form := regexp.MustCompile(`(?s)<form [^>]*id="` + id + `".*?</form>`).FindString(page)
	require.NotEmpty(v.t, form, "the page has a form %s: %s", id, page)
	fields := url.Values{}
	for _, m := range regexp.MustCompile(`<input[^>]* name="([^"]*)"(?: value="([^"]*)")?`).FindAllStringSubmatch(form, -1) {
		fields.Set(m[1], html.UnescapeString(m[2]))
	}
	for i := 0; i < len(more); i += 2 {
		fields.Set(more[i], more[i+1])
	}
	var answer *http.Response
	var err error
	if strings.Contains(form, `action="confirm"`) {
		answer, err = client.Get(v.base + "confirm?" + fields.Encode())
	} else {
		answer, err = client.PostForm(v.base+"act", fields)
	}
	require.NoError(v.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(v.t, err)
	require.Equal(v.t, http.StatusOK, answer.StatusCode, string(text))
	return html.UnescapeString(string(text))
}

// Each change of the console does the same on every backend.
func TestServeChanges(t *testing.T) {
	t.Run("bolt", func(t *testing.T) {
		changesOfServe(t, &bench{t: t, b: openBackend(t, bolt.Driver{}, "bolt:"+filepath.ToSlash(filepath.Join(t.TempDir(), "shop.db")))})
	})
	onThreeAtOnce(t, changesOfServe) // and nothing else, because the console shows a result only if it comes soon
}

func changesOfServe(t *testing.T, b *bench) {
	b.ok(numbered(20), "pub", "orders")
	b.failed(10, "sub", "orders", "--group", "billing", "--idle-exit", "300ms", "--exec", `exit $(( ${EVENTBUS_ID#e-} % 2 * 65 ))`)
	v, r := b.serve("--allow-write")
	require.Contains(t, r.errs.String(), "Every user of this machine can change groups and discard dead letters here.\n")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	get := func(path string) string {
		path, _, _ = strings.Cut(path, "#")
		answer, err := client.Get(v.base + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return string(text)
	}
	group := func() string {
		var page string
		await(t, "the group has numbers", func() bool {
			page = get("group?topic=orders&name=billing")
			return strings.Contains(page, `id="reset"`)
		})
		return page
	}
	require.Contains(t, v.submit(client, group(), "pause", "why", "a test"), "group billing of orders is paused until somebody resumes it")
	require.Contains(t, b.ok("", "groups", "orders").stdout, "a test")
	require.Contains(t, v.submit(client, group(), "resume"), "group billing of orders is resumed")
	require.NotContains(t, b.ok("", "groups", "orders").stdout, "a test")

	list := get("topic?name=orders.dlq&order=oldest")
	places := cells(list, "Position")
	require.Len(t, places, 10)
	require.Contains(t, v.submit(client, get(link(list, places[0])), "redrive"), "1 dead letter redriven")
	require.Contains(t, v.submit(client, get(strings.Replace(link(list, places[1]), "event?", "edit?", 1)), "edit", "type", "fixed"), "1 dead letter redriven")
	ask := v.submit(client, get(link(list, places[2])), "discard")
	require.Contains(t, v.submit(client, ask, "confirm"), "1 dead letter discarded")
	ask = v.submit(client, get("letters?topic=orders.dlq&id=e-7"), "redrive")
	require.Contains(t, ask, `<strong id="found">1</strong>`)
	require.Contains(t, v.submit(client, ask, "confirm"), "1 dead letter redriven")
	ask = v.submit(client, get("letters?topic=orders.dlq"), "redrive")
	require.Contains(t, ask, `<strong id="found">6</strong>`)
	require.Contains(t, v.submit(client, ask, "confirm", "rate", "1000"), "6 dead letters redriven")
	require.Empty(t, cells(get("topic?name=orders.dlq"), "ID"))
	handled := b.ok("", "sub", "orders", "--group", "billing", "--idle-exit", "300ms").stdout
	require.Equal(t, 9, strings.Count(handled, `"id":`), "every letter but the discarded one: %s", handled)
	require.Contains(t, handled, `"type":"fixed"`)

	ask = v.submit(client, group(), "reset", "to", "latest")
	require.Contains(t, v.submit(client, ask, "confirm"), "starts again at latest, and has 0 unsettled events")
	ask = v.submit(client, group(), "delete-group")
	require.Contains(t, v.submit(client, ask, "confirm"), "group billing of orders is deleted")
	require.NotContains(t, b.ok("", "groups").stdout, "billing")
	log := r.errs.String()
	require.Equal(t, 9, strings.Count(log, `msg="console: end" who=127.0.0.1`), log)
	require.Zero(t, r.end().code)
}

func TestServeSaysWhoMayWrite(t *testing.T) {
	b := newBench(t)
	all := b.start("serve", "--listen", "0.0.0.0:0", "--allow-write")
	await(t, "it serves", func() bool {
		return strings.Contains(all.errs.String(), "Everybody who can reach this address can delete groups and discard dead letters.\n")
	})
	require.Zero(t, all.end().code)
	v, _ := b.serve()
	answer, err := http.PostForm(v.base+"act", url.Values{"verb": {"delete-group"}})
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
}

// dataOf returns the figure of a page with this name.
func dataOf(page, name string) string {
	_, rest, _ := strings.Cut(page, "<dt>"+name+"</dt><dd>")
	text, _, _ := strings.Cut(rest, "</dd>")
	return text
}

// The console shows the scheduled and recurring events of each backend.
func TestServeSchedule(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		var lines strings.Builder
		for i := range 40 {
			fmt.Fprintf(&lines, `{"id":"e-%d","type":"payment.due","key":"k-%d","data":{"n":%d}}`+"\n", i, i%3, i)
		}
		b.ok(lines.String(), "pub", "reminders", "--in", "2h")
		b.ok(`{"id":"first","data":1}`, "pub", "reminders", "--in", "1h")
		b.ok("", "schedule", "cancel", "reminders", "e-7")
		bus, err := eventbus.New(sharedBackend{b.b}, eventbus.Options{Service: "test", Observer: logProblems(io.Discard)})
		require.NoError(t, err)
		defer bus.Shutdown(context.WithoutCancel(t.Context()))
		require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "nightly", Topic: "reminders", Cron: "0 3 * * *", Zone: "Europe/Berlin", Event: eventbus.Event{Type: "report.due"}}))

		v, r := b.serve()
		page := v.page("schedule?topic=reminders")
		require.Equal(t, "40", dataOf(page, "Waiting events"))
		require.Equal(t, "0", dataOf(page, "Overdue"))
		require.Equal(t, []string{"nightly", "first", "e-0", "e-1"}, cells(page, "ID")[:4])
		require.Len(t, cells(page, "Due"), 25)
		require.Equal(t, []string{"0 3 * * *"}, cells(page, "Schedule"))
		require.NotContains(t, []string{"never", "unknown", "paused"}, cells(page, "Next")[0])
		event := v.page(link(page, cells(page, "Due")[0]))
		require.Contains(t, event, `<dd class="long">first</dd>`)
		require.NotEmpty(t, link(v.page("topic?name=reminders.later"), cells(v.page("topic?name=reminders.later"), "Position")[0]))

		handled := make(chan string, 1)
		_, err = bus.Subscribe(t.Context(), "reminders", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
			handled <- d.ID
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.PublishIn(t.Context(), "reminders", 100*time.Millisecond, &eventbus.Event{ID: "soon"}))
		require.Equal(t, "soon", <-handled)
		await(t, "a process publishes, and the entry has its event", func() bool {
			page = v.page("schedule?topic=reminders")
			return dataOf(page, "Waiting events") == "41" && !slices.Contains(cells(page, "ID"), "soon")
		})
		require.NotEqual(t, "0", dataOf(page, "Publishing now"), "a backend that cannot tell says unknown")
		require.Zero(t, r.end().code)
	})
}

// The console shows the steps of events, and when and why they are retried, on each backend.
func TestServeLifecycle(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		records := lifecycle.New(lifecycle.Options{Source: "shop"})
		bus, err := eventbus.New(sharedBackend{b.b}, eventbus.Options{Service: "test", Observer: observer.Join(logProblems(io.Discard), records.Observer())})
		require.NoError(t, err)
		defer bus.Shutdown(context.WithoutCancel(t.Context()))
		require.NoError(t, records.Start(t.Context(), b.b))
		defer records.Close(context.WithoutCancel(t.Context()))
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Retry: eventbus.Retry{MaxAttempts: 3, Initial: time.Hour, Max: time.Hour}}, func(_ context.Context, d *eventbus.Delivery) error {
			if d.ID == "bad" {
				return errors.New("no answer")
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "good", Key: "a"}, &eventbus.Event{ID: "bad", Key: "b"}))
		await(t, "all steps are stored", func() bool {
			ms, _ := backend.Read(t.Context(), b.b, lifecycle.Topic("orders"), backend.StartEarliest, 10)
			return len(ms) == 5
		})
		v, r := b.serve("--hide-payloads")
		page := v.page("lifecycle?topic=orders&group=billing")
		states := cells(page, "State")
		slices.Sort(states)
		require.Equal(t, []string{"active", "active", "completed", "failed", "retried"}, states)
		require.Contains(t, html.UnescapeString(page), "no answer", "a record has no payload, so it is not hidden")
		page = v.page("group?topic=orders&name=billing")
		require.Equal(t, []string{"bad"}, cells(page, "Event"))
		require.Equal(t, []string{"1 of 3"}, cells(page, "Attempts"))
		require.Equal(t, []string{"no answer"}, cells(page, "Error"))
		require.Equal(t, []string{"bad"}, cells(v.page(link(page, "bad")), "ID"))
		require.Zero(t, r.end().code)
	})
}

// The page of a trace is linked, and only at an address of the web.
func TestServeTraceURL(t *testing.T) {
	b := newBench(t)
	b.ok(`{"id":"e-1","headers":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}`, "pub", "orders")
	v, _ := b.serve("--trace-url", "https://tempo.example.com/trace/{trace_id}")
	page := v.page("topic?name=orders")
	event := v.page(link(page, cells(page, "Position")[0]))
	require.Equal(t, "https://tempo.example.com/trace/4bf92f3577b34da6a3ce929d0e0e4736", link(event, "4bf92f3577b34da6a3ce929d0e0e4736"))
	for want, address := range map[string]string{
		"serve: --trace-url does not begin with http:// or https://": "javascript:{trace_id}",
		"serve: --trace-url does not have {trace_id}":                "https://tempo.example.com/",
		"serve: --trace-url is empty":                                "",
	} {
		got := b.run("", "serve", "--trace-url", address)
		require.Equal(t, 1, got.code)
		require.Contains(t, got.stderr, want)
	}
}
