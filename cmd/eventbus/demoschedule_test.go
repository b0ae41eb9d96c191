//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// Three processes publish scheduled and recurring events. Two of them are killed, one after
// the other, and others take their places. No event is published early, lost or published
// twice. EVENTBUS_SCHEDULE_EVENTS is the number of events (1,000), one second for each 333.
func TestDemoSchedule(t *testing.T) {
	t.Parallel()
	n := 1000
	if v := os.Getenv("EVENTBUS_SCHEDULE_EVENTS"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if n <= 1000 {
				t.Parallel()
			}
			demoSchedule(t, k, n)
		})
	}
}

// A plan is the account of the events that are to come.
type plan struct {
	due     map[string]time.Time // by ID
	entries int
	from    time.Time // before the first entry was entered
	until   time.Time // after this time nothing is expected
}

func demoSchedule(t *testing.T, k kind, n int) {
	url := k.start(t).URL()
	b := openBackend(t, k.driver, url)
	over := time.Duration(n) * time.Second / 333
	p := plan{due: map[string]time.Time{}, entries: max(n/200, 5), from: time.Now()}
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "witness", Lease: time.Minute, Notify: func(backend.Notice) {}})
	require.NoError(t, err)

	var movers []*exec.Cmd
	start := func() {
		cmd := process(t, "schedule", "run", "orders", "--url", url)
		cmd.Stderr = t.Output()
		require.NoError(t, cmd.Start())
		movers = append(movers, cmd)
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	for range 3 {
		start()
	}
	schedule(t, k, url, &p, n, over)
	seen := make(chan storedEvents, 1)
	ctx, cancel := context.WithDeadline(t.Context(), p.until)
	defer cancel()
	go func() { seen <- receiveAll(ctx, src) }()
	for i, at := range []time.Duration{over / 3, 2 * over / 3} {
		time.Sleep(time.Until(p.from.Add(at + 7*time.Second)))
		require.NoError(t, movers[i].Process.Kill())
		_ = movers[i].Wait()
		start()
	}
	p.check(t, k, <-seen)
}

// schedule schedules n events over the given time, and enters the recurring entries.
func schedule(t *testing.T, k kind, url string, p *plan, n int, over time.Duration) {
	other := openBackend(t, k.driver, url)
	bus, err := eventbus.New(other, eventbus.Options{})
	require.NoError(t, err)
	for i := range p.entries {
		require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: fmt.Sprint("tick-", i), Topic: "orders", Every: time.Duration(1+i%10) * time.Second, Missed: eventbus.FireAll}))
	}
	base := time.Now().Add(7 * time.Second) // after the first look of the processes
	byTime := map[time.Time][]*eventbus.Event{}
	for i := range n {
		at := base.Add(rand.N(over)).Truncate(10 * time.Millisecond)
		id := fmt.Sprint("e-", i)
		p.due[id] = at
		byTime[at] = append(byTime[at], &eventbus.Event{ID: id, Payload: make([]byte, 200)})
	}
	for at, events := range byTime {
		require.NoError(t, bus.PublishAt(t.Context(), "orders", at, events...))
	}
	p.until = base.Add(over + 12*time.Second)
}

// storedEvents are the events that were stored in the topic, in their order.
type storedEvents []struct {
	id string
	at time.Time
}

// receiveAll receives the messages of a group until ctx ends.
func receiveAll(ctx context.Context, src backend.Source) (all storedEvents) {
	for ctx.Err() == nil {
		ds, err := src.Receive(ctx, 500, 0)
		if err != nil && ctx.Err() == nil {
			panic(err)
		}
		for i := range ds {
			all = append(all, struct {
				id string
				at time.Time
			}{strings.Clone(ds[i].ID), time.Now()})
		}
		if err := src.Ack(context.WithoutCancel(ctx), backend.Lend(ds)); err != nil {
			panic(err)
		}
	}
	return all
}

// check compares the plan with the events that have come.
func (p *plan) check(t *testing.T, k kind, all storedEvents) {
	count, ticks := map[string]int{}, map[string][]time.Time{}
	var late []time.Duration
	early := 0
	for _, w := range all {
		count[w.id]++
		due, planned := p.due[w.id]
		if !planned {
			entry, at, ok := strings.Cut(w.id, "/")
			require.True(t, ok, "an event that nobody has scheduled: %s", w.id)
			var err error
			due, err = time.Parse(time.RFC3339, at)
			require.NoError(t, err)
			ticks[entry] = append(ticks[entry], due)
		}
		if w.at.Before(due) {
			early++
		}
		if planned {
			late = append(late, w.at.Sub(due))
		}
	}
	lost, twice := 0, 0
	for id := range p.due {
		if count[id] == 0 {
			lost++
		}
	}
	for _, c := range count {
		if c > 1 {
			twice++
		}
	}
	gaps := 0
	for i := range p.entries {
		every := time.Duration(1+i%10) * time.Second
		times := ticks[fmt.Sprint("tick-", i)]
		slices.SortFunc(times, time.Time.Compare)
		for j := 1; j < len(times); j++ {
			if gap := times[j].Sub(times[j-1]).Round(time.Second); gap != every {
				gaps++
			}
		}
		if len(times) == 0 || p.until.Sub(times[len(times)-1]) > every+8*time.Second {
			gaps++
		}
	}
	require.NotEmpty(t, late, "%s: no scheduled event was handled", k.name)
	slices.Sort(late)
	fired := len(all) - len(late)
	fmt.Fprintf(t.Output(), "%s: %d scheduled, %d fired by %d entries: early %d, lost %d, twice %d, missed %d; late p50 %v, p99 %v, max %v\n",
		k.name, len(p.due), fired, p.entries, early, lost, twice, gaps,
		late[len(late)/2].Round(time.Millisecond), late[len(late)*99/100].Round(time.Millisecond), late[len(late)-1].Round(time.Millisecond))
	require.Zero(t, early+lost+twice+gaps)
}
