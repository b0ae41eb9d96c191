package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/demo"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/shop"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/observer"
)

// killLease is short, so that events in flight at a crash are redelivered soon. It is
// longer than the server is down.
const killLease = 10 * time.Second

// The shop's events pass through a server that is killed three times and restarted on its
// data. No event is lost, and each customer's events are first handled in order. Only
// events that may be redelivered are handled twice.
func TestDemoKill(t *testing.T) {
	t.Parallel()
	if rawURL := os.Getenv("EVENTBUS_DEMO_URL"); rawURL != "" {
		demoYours(t, rawURL)
		return
	}
	only, ran := os.Getenv("EVENTBUS_DEMO_BROKER"), 0
	for _, k := range kinds {
		if only == k.name || only == "" {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				demoKill(t, k)
			})
			ran++
		}
	}
	require.Positive(t, ran, "no broker is called %q", only)
}

// demoDays returns how many days of the shop to publish.
func demoDays(t *testing.T) int {
	v := os.Getenv("EVENTBUS_DEMO_DAYS")
	if v == "" {
		return 1
	}
	n, err := strconv.Atoi(v)
	require.NoError(t, err)
	return n
}

func demoKill(t *testing.T, k kind) {
	days := demoDays(t)
	// The failures depend on the events alone, so a calm run in memory has the same dead letters.
	calm := runShop(t, newWitness(newBench(t).b), "shop", days, func(context.Context, *demo.Account) {})
	fmt.Fprintf(t.Output(), "a calm run in memory:\n%s\n", text(t, calm))
	for _, g := range calm.Groups {
		require.Zero(t, g.OutOfOrder, "%s, in a calm run", g.Group)
	}

	server := k.start(t)
	w := newWitness(openBackend(t, k.driver, server.URL()))
	risk := map[string]exposure{} // sum over all kills
	kills := 0
	troubled := runShop(t, w, "shop", days, func(ctx context.Context, a *demo.Account) {
		for _, percent := range []int{25, 50, 75} {
			if !reach(ctx, a, 2000*days*percent/100) {
				return
			}
			killed := time.Now()
			server.Kill()
			w.died()
			kills++
			since := killed.Add(-k.forgets)
			// A dead letter that is read twice counts for the group that wrote it. That
			// may be any group, so each group may have that many more.
			dead := w.forgotten("shop.dlq", "account", since)
			for _, g := range a.Rows() {
				risk[g.Group] = risk[g.Group].and(dead).and(w.forgotten("shop", g.Group, since))
			}
			server.Run()
			w.runs()
		}
	})
	fmt.Fprintf(t.Output(), "%s, killed %d times:\n%s\n", k.name, kills, text(t, troubled))

	require.Equal(t, 3, kills)
	require.Equal(t, calm.Published, troubled.Published)
	require.Zero(t, troubled.Lost+troubled.Unknown)
	require.Empty(t, w.relapses(), "handed out although the server knew that they were acknowledged")
	for i, g := range troubled.Groups {
		r := risk[g.Group].and(w.late("shop", g.Group)).and(w.late("shop.dlq", "account"))
		fmt.Fprintf(t.Output(), "%s: %d handled twice; when the server died %d were in flight, and %d acknowledged so lately that it may have forgotten it\n",
			g.Group, g.Duplicated, r.inFlight, r.recent)
		require.LessOrEqual(t, g.Duplicated, r.inFlight+r.recent, g.Group)
		if k.forgets == 0 {
			require.Zero(t, g.OutOfOrder, g.Group)
			require.Equal(t, calm.Groups[i].DeadLettered, g.DeadLettered, g.Group)
			continue
		}
		// A server that forgets may restart the count of attempts, so an event that always
		// fails is dead-lettered later. A forgotten retry is redelivered when its lease
		// expires. Other events of its key do not wait that long: the retry and the next
		// event of its key are out of order.
		fmt.Fprintf(t.Output(), "%s: %d out of order; %d were given back so lately that it may have forgotten it\n", g.Group, g.OutOfOrder, r.returned)
		require.LessOrEqual(t, g.OutOfOrder, 2*(r.inFlight+r.returned), g.Group)
	}
}

// demoYours runs the shop on a server that the test did not start and does not kill. Its
// owner may kill it as often as they like.
func demoYours(t *testing.T, rawURL string) {
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal("EVENTBUS_DEMO_URL is not a URL") // without the URL, which may hold a password
	}
	at := slices.IndexFunc(kinds, func(k kind) bool { return slices.Contains(k.driver.Schemes(), u.Scheme) })
	require.NotEqual(t, -1, at, "no broker has the scheme %q", u.Scheme)
	w := newWitness(openBackend(t, kinds[at].driver, rawURL))
	topic := "demo-kill-" + uuid.NewString()
	fmt.Fprintln(t.Output(), "this server is yours: kill it, and start it again, while the shop is open")
	report := runShop(t, w, topic, demoDays(t), func(context.Context, *demo.Account) {})
	fmt.Fprintln(t.Output(), text(t, report))
	require.NoError(t, report.Err())
	admin, ok := backend.As[backend.Admin](w)
	require.True(t, ok)
	for _, name := range []string{topic, topic + ".dlq"} {
		require.NoError(t, admin.DeleteTopic(t.Context(), name))
	}
}

func text(t *testing.T, r demo.Report) string {
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	return b.String()
}

// runShop runs the demo together with harm.
func runShop(t *testing.T, w *witness, topic string, days int, harm func(context.Context, *demo.Account)) demo.Report {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	quiet := observer.Slog(slog.New(slog.DiscardHandler))
	bus := eventbustest.On(t, kept{w}, eventbus.Options{Dedup: true, Observer: quiet})
	d := demo.New(bus, topic, demo.NewInput("the shop", manyDays(t, days)))
	d.SetLease(killLease)
	done := make(chan struct{})
	go func() {
		defer close(done)
		harm(ctx, d.Account())
	}()
	start := time.Now()
	err := d.Run(ctx)
	cancel()
	<-done
	require.NoError(t, err)
	return d.Account().Report(strconv.Itoa(days)+" days in the shop", time.Since(start))
}

// A kept backend ignores Close, so it stays open after the bus.
type kept struct{ *witness }

func (kept) Close() error { return nil }

// manyDays repeats the shop's day with new IDs.
func manyDays(t *testing.T, days int) io.Reader {
	var out bytes.Buffer
	for day := range days {
		lines := bufio.NewScanner(shop.Events())
		for lines.Scan() {
			var e map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
			var id string
			require.NoError(t, json.Unmarshal(e["id"], &id))
			e["id"] = json.RawMessage(strconv.Quote(fmt.Sprintf("%s-%d", id, day)))
			line, err := json.Marshal(e)
			require.NoError(t, err)
			out.Write(append(line, '\n'))
		}
		require.NoError(t, lines.Err())
	}
	return &out
}

// reach waits until every group has finished n events.
func reach(ctx context.Context, a *demo.Account, n int) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		least := n
		for _, g := range a.Rows() {
			least = min(least, g.Handled+g.DeadLettered)
		}
		if least >= n {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}
