package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/demo"
	"github.com/seed41896749/eventbus/observer"
)

const (
	boltURL   = "EVENTBUS_TEST_BOLT_URL"  // the file of a process that is killed
	boltLife  = "EVENTBUS_TEST_BOLT_LIFE" // how often this process was killed before
	boltKills = 5
)

var boltGroups = []string{"audit", "billing"}

// One process publishes to a file and handles the events in two groups. It is killed five times
// and started again. Each stored event is handled in each group, and no other event is. Events
// of a key are first handled in order. Only an event that was in flight is handled twice.
func TestBoltKill(t *testing.T) {
	if os.Getenv(boltURL) != "" {
		boltShop(t)
		return
	}
	t.Parallel()
	url := "bolt:" + filepath.ToSlash(filepath.Join(t.TempDir(), "events.db"))
	a := boltAccount{published: map[string]bool{}, stored: map[string]bool{}, handled: map[string][]int{}, last: map[string]string{}}
	for life := range boltKills + 1 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBoltKill$")
		cmd.Env = append(os.Environ(), boltURL+"="+url, boltLife+"="+strconv.Itoa(life))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		ended := a.follow(t, out, life, func(handled int) {
			if life < boltKills && handled == 300+50*life {
				require.NoError(t, cmd.Process.Kill())
			}
		})
		require.Equal(t, life == boltKills, ended)
		if err := cmd.Wait(); life == boltKills {
			require.NoError(t, err)
		} else {
			require.Error(t, err, "it was killed")
		}
	}
	twice := a.check(t)
	fmt.Fprintf(t.Output(), "killed %d times: %d events stored, %d more under way when it was killed, %d handlings repeated\n",
		boltKills, len(a.stored), len(a.published)-len(a.stored), twice)
}

// A boltAccount holds the lines that all processes have written.
type boltAccount struct {
	published, stored map[string]bool
	handled           map[string][]int  // by group and ID: the lives in which it was handled
	last              map[string]string // by group and key: the ID that was handled first most recently
}

// follow reads the lines of a process until it ends. It reports whether the process has finished.
func (a *boltAccount) follow(t *testing.T, out io.Reader, life int, handled func(n int)) (ended bool) {
	n := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		verb, id, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "publish":
			a.published[id] = true
		case "stored":
			a.stored[id] = true
		case "handled": // its id is GROUP KEY-LIFE-NUMBER
			if len(a.handled[id]) == 0 {
				lane, _, _ := strings.Cut(id, "-")
				require.Less(t, a.last[lane], id, "out of order")
				a.last[lane] = id
			}
			a.handled[id] = append(a.handled[id], life)
			n++
			handled(n)
		case "end":
			ended = true
		}
	}
	return ended
}

// check compares the lines, and returns how many handlings were repetitions.
func (a *boltAccount) check(t *testing.T) (twice int) {
	for id := range a.stored {
		for _, group := range boltGroups {
			require.NotEmpty(t, a.handled[group+" "+id], "%s is lost in %s", id, group)
		}
	}
	for name, lives := range a.handled {
		_, id, _ := strings.Cut(name, " ")
		require.True(t, a.published[id], "nobody has published %s", id)
		for i, life := range lives[1:] {
			require.Greater(t, life, lives[i], "%s was handled twice by one process", name)
			twice++
		}
	}
	require.Greater(t, len(a.stored), 300*boltKills/len(boltGroups))
	return twice
}

// boltShop publishes and handles events until its process is killed. In the last life it publishes a few
// events, and ends when every group has handled all.
func boltShop(t *testing.T) {
	ctx := t.Context()
	bus, err := eventbus.Open(ctx, os.Getenv(boltURL), eventbus.Options{
		Instance: "shop-0", Observer: observer.Slog(slog.New(slog.DiscardHandler)), // its events are redelivered at once
	}, bolt.Driver{})
	require.NoError(t, err)
	for _, group := range boltGroups {
		_, err := bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: group, Concurrency: 8},
			func(_ context.Context, d *eventbus.Delivery) error {
				fmt.Fprintln(os.Stdout, "handled", group, d.ID)
				return nil
			})
		require.NoError(t, err)
	}
	life, n := os.Getenv(boltLife), 1<<30
	if life == strconv.Itoa(boltKills) {
		n = 50
	}
	var publishers sync.WaitGroup
	for key := range 4 {
		publishers.Go(func() {
			for i := range n {
				e := &eventbus.Event{ID: fmt.Sprintf("key%d-%s-%08d", key, life, i), Key: strconv.Itoa(key)}
				fmt.Fprintln(os.Stdout, "publish", e.ID)
				if err := bus.Publish(ctx, "orders", e); err != nil {
					t.Error(err)
					return
				}
				fmt.Fprintln(os.Stdout, "stored", e.ID)
			}
		})
	}
	publishers.Wait()
	for _, group := range boltGroups {
		await(t, "all are handled", func() bool {
			s, err := backend.StatsOf(ctx, bus.Backend(), "orders", group)
			require.NoError(t, err)
			return s.Lag+s.InFlight+s.Delayed == 0
		})
	}
	require.NoError(t, bus.Shutdown(ctx))
	fmt.Fprintln(os.Stdout, "end")
}

// The demo on a file is killed three times, and its fourth run accounts for all of its events.
func TestBoltDemoKill(t *testing.T) {
	t.Parallel()
	const days = 1
	folder := t.TempDir()
	url, input := "bolt:"+filepath.ToSlash(filepath.Join(folder, "events.db")), filepath.Join(folder, "input")
	text, err := io.ReadAll(manyDays(t, days))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(input, text, 0o600))
	demoOf := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "demo", "--json", "--topic-prefix", "shop", "--url", url, "--input", input)
		cmd.Env = append(os.Environ(), "EVENTBUS_TEST_IS_COMMAND=1")
		return cmd
	}
	for i := range 3 {
		cmd := demoOf()
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(i+1) * 150 * time.Millisecond) // the demo of so many events takes longer
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}
	out, err := demoOf().Output()
	require.NoError(t, err)
	var r demo.Report
	require.NoError(t, json.Unmarshal(out, &r))
	require.NoError(t, r.Err())
	require.Equal(t, days*2000, r.Published)
}
