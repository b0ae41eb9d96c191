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
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/demo"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/shop"
	"github.com/seed41896749/eventbus/internal/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// killLease is short, so that what a dying server had on its way comes again
// soon.
const killLease = 5 * time.Second

// The shop's events go through a server that is killed three times on the way
// and started again on its data. Nothing is lost, each customer's events are
// first handled in order, the same ones end as dead letters as in a calm run, and
// no more is handled twice than was on its way when the server died.
func TestDemoKill(t *testing.T) {
	t.Parallel()
	days := 4
	if v := os.Getenv("EVENTBUS_DEMO_DAYS"); v != "" {
		n, err := strconv.Atoi(v)
		require.NoError(t, err)
		days = n
	}
	server := redistest.Start(t)
	calm := runShop(t, server.URL(), "calm", days, func(context.Context, *demo.Account, int) {})
	fmt.Fprintf(t.Output(), "a calm run:\n%s\n", text(t, calm))

	inFlight := map[string]int64{}
	kills := 0
	troubled := runShop(t, server.URL(), "killed", days, func(ctx context.Context, a *demo.Account, total int) {
		for _, percent := range []int{25, 50, 75} {
			if !reach(ctx, a, total*percent/100) {
				return
			}
			server.Kill()
			kills++
			for group, n := range heldAtDeath(t, server, "killed", a) {
				inFlight[group] += n
			}
			server.Run()
		}
	})
	fmt.Fprintf(t.Output(), "the server killed %d times:\n%s\n", kills, text(t, troubled))

	require.NoError(t, troubled.Err())
	require.Equal(t, 3, kills)
	require.Equal(t, calm.Published, troubled.Published)
	for i, g := range troubled.Groups {
		fmt.Fprintf(t.Output(), "%s: %d handled twice, %d were in flight when the server died\n", g.Group, g.Duplicated, inFlight[g.Group])
		require.Equal(t, calm.Groups[i].DeadLettered, g.DeadLettered, g.Group)
		require.LessOrEqual(t, int64(g.Duplicated), inFlight[g.Group], g.Group)
	}
}

func text(t *testing.T, r demo.Report) string {
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	return b.String()
}

// runShop runs the demo in a namespace of its own while harm is at work.
func runShop(t *testing.T, server, namespace string, days int, harm func(context.Context, *demo.Account, int)) demo.Report {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	quiet := observer.Slog(slog.New(slog.DiscardHandler))
	bus, err := eventbus.Open(ctx, server+"?namespace="+namespace, eventbus.Options{Dedup: true, Observer: quiet}, redisstream.Driver{})
	require.NoError(t, err)
	d := demo.New(bus, "shop", demo.NewInput("the shop", manyDays(t, days)))
	d.SetLease(killLease)
	done := make(chan struct{})
	go func() {
		defer close(done)
		harm(ctx, d.Account(), 2000*days)
	}()
	start := time.Now()
	err = d.Run(ctx)
	cancel()
	<-done
	require.NoError(t, err)
	return d.Account().Report(strconv.Itoa(days)+" days in the shop", time.Since(start))
}

// manyDays is the shop's day again and again, with other ids.
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

// reach waits until every group has finished so many events.
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

// heldAtDeath looks at a copy of a dead server's data: what was held by each
// group, and who wrote the dead letters' account.
func heldAtDeath(t *testing.T, dead *redistest.Server, namespace string, a *demo.Account) map[string]int64 {
	dir := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(dir, os.DirFS(dead.Dir())))
	server := redistest.Start(t, redistest.Args("--dir", dir))
	defer server.Kill()
	u, err := url.Parse(server.URL() + "?namespace=" + namespace)
	require.NoError(t, err)
	b, err := redisstream.Driver{}.Open(t.Context(), u)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	stats, ok := backend.As[backend.Statser](b)
	require.True(t, ok)
	held := map[string]int64{}
	for _, g := range a.Rows() {
		s, err := stats.Stats(t.Context(), "shop", g.Group)
		require.NoError(t, err)
		held[g.Group] = s.InFlight
	}
	// A dead letter that is read twice counts for the group that wrote it; only
	// one group's could be meant, so each may have as many more.
	s, err := stats.Stats(t.Context(), "shop.dlq", "account")
	require.NoError(t, err)
	for group := range held {
		held[group] += s.InFlight
	}
	return held
}
