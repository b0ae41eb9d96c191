//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

const (
	groupKeys = 160
)

// Three processes share 16 partitions. Of the events 2 % fail once. One process is killed, one is
// frozen for two leases, and two more are added. Every event is handled, and the order of every key
// holds across the processes. If EVENTBUS_GROUP_EVENTS is set, it is the number of events, which is
// 2000 otherwise. The test then runs on clusters too, and one kind of broker runs after another.
func TestDemoGroups(t *testing.T) {
	t.Parallel()
	n, all := 2000, kinds
	v, long := os.LookupEnv("EVENTBUS_GROUP_EVENTS")
	if long {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
		all = slices.Concat(kinds, clusters)
	}
	for _, k := range all {
		t.Run(k.name, func(t *testing.T) {
			if !long {
				t.Parallel()
			}
			demoGroups(t, k, n)
		})
	}
}

// A groupAccount holds what the members have reported.
type groupAccount struct {
	mu     sync.Mutex
	begins map[[2]string][]int64 // by key and number: when runs began
	first  map[[2]string]int64   // by key and number: when it was handled for the first time
	gained []int64               // when partitions were gained
	story  map[string][]string   // by key and by partition: all lines
	runs   int
	again  int
}

// start starts the process of a member, whose lines a.read collects.
func (a *groupAccount) start(t *testing.T, name, rawURL string, live *sync.WaitGroup) *exec.Cmd {
	cmd := process(t)
	cmd.Env = append(os.Environ(), memberVariable+"="+rawURL, memberName+"="+name)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	live.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			a.read(strings.Fields(lines.Text()))
		}
		_ = cmd.Wait() // one is killed
	})
	return cmd
}

func (a *groupAccount) read(words []string) {
	if len(words) != 5 {
		return // the last line of a killed process may be cut short
	}
	at, err := strconv.ParseInt(words[4], 10, 64)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	event := [2]string{words[1], words[2]}
	a.story[words[1]] = append(a.story[words[1]], fmt.Sprintf("%s %s %s %s", time.Unix(0, at).Format("05.000"), words[3], words[0], words[2]))
	switch words[0] {
	case "begin":
		a.begins[event] = append(a.begins[event], at)
		a.runs++
	case "done":
		if old, has := a.first[event]; has {
			a.again++
			at = min(at, old)
		}
		a.first[event] = at
	case "gained":
		a.gained = append(a.gained, at)
	}
}

func (a *groupAccount) handled() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.first)
}

// takeover returns how long after since the last partition was gained before the time until.
func (a *groupAccount) takeover(since, until time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := since.UnixNano()
	for _, at := range a.gained {
		if at < until.UnixNano() {
			last = max(last, at)
		}
	}
	return time.Duration(last - since.UnixNano()).Round(10 * time.Millisecond)
}

// disorder counts the runs that began before an earlier event of their key was handled, and tells the
// story of the first one.
func (a *groupAccount) disorder(to io.Writer) (wrong int) {
	for event, begins := range a.begins {
		n, _ := strconv.Atoi(event[1])
		if n == 0 {
			continue
		}
		before, has := a.first[[2]string{event[0], strconv.Itoa(n - 1)}]
		if !has || before > slices.Min(begins) {
			if wrong++; wrong == 1 {
				a.tell(to, event, "began too early")
			}
		}
	}
	return wrong
}

// missing returns how many of n events were not handled. It prints how many of each partition, with the first five, and
// tells the story of the first one.
func (a *groupAccount) missing(to io.Writer, n int) (all int) {
	of := map[int][]string{}
	for i := range n {
		event := [2]string{fmt.Sprintf("key-%03d", i%groupKeys), strconv.Itoa(i / groupKeys)}
		if _, has := a.first[event]; has {
			continue
		}
		if all++; all == 1 {
			a.tell(to, event, "was not handled")
		}
		p := eventbus.PartitionOf(event[0], groupPartitions)
		of[p] = append(of[p], event[0]+"/"+event[1])
	}
	for _, p := range slices.Sorted(maps.Keys(of)) {
		events := of[p]
		fmt.Fprintf(to, "partition %d: %d events not handled, the first %s\n", p, len(events), strings.Join(events[:min(len(events), 5)], " "))
	}
	return all
}

// tell tells all about the key and the partition of an event.
func (a *groupAccount) tell(to io.Writer, event [2]string, what string) {
	partition := strconv.Itoa(eventbus.PartitionOf(event[0], groupPartitions))
	for _, about := range []string{event[0], partition} {
		lines := a.story[about]
		slices.Sort(lines)
		fmt.Fprintf(to, "event %s of %s %s; all about %s:\n%s\n", event[1], event[0], what, about, strings.Join(lines, "\n"))
	}
}

func demoGroups(t *testing.T, k kind, n int) {
	rawURL := k.start(t).URL()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	b, err := k.driver.Open(t.Context(), u)
	require.NoError(t, err)
	bus, err := eventbus.New(b, groupOptions())
	require.NoError(t, err)
	a := &groupAccount{begins: map[[2]string][]int64{}, first: map[[2]string]int64{}, story: map[string][]string{}}
	var live sync.WaitGroup
	members := map[string]*exec.Cmd{}
	add := func(name string) { members[name] = a.start(t, name, rawURL, &live) }
	for _, name := range []string{"one", "two", "three"} {
		add(name)
	}
	time.Sleep(2 * time.Second) // so that the group exists
	var killed, frozen, added time.Time
	pace := time.NewTicker(max(20*time.Second/time.Duration(n), 50*time.Microsecond))
	defer pace.Stop()
	for i := range n {
		<-pace.C
		key := fmt.Sprintf("key-%03d", i%groupKeys)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: strconv.Itoa(i / groupKeys), Key: key}))
		switch i {
		case n / 10:
			killed = time.Now()
			require.NoError(t, members["one"].Process.Kill())
		case n / 2:
			frozen = time.Now()
			two := members["two"].Process // other members are added meanwhile
			require.NoError(t, two.Signal(syscall.SIGSTOP))
			time.AfterFunc(2*groupLease, func() { _ = two.Signal(syscall.SIGCONT) })
		case 9 * n / 10:
			added = time.Now()
			add("four")
			add("five")
		}
	}
	published := time.Now()
	for a.handled() < n && time.Since(published) < time.Minute {
		time.Sleep(50 * time.Millisecond)
	}
	took := time.Since(published).Round(100 * time.Millisecond)
	time.Sleep(max(0, time.Until(frozen.Add(2*groupLease+3*time.Second)))) // the frozen one continues
	s, err := groupStats(t.Context(), b)
	require.NoError(t, err)
	for _, m := range members {
		_ = m.Process.Signal(syscall.SIGTERM)
	}
	live.Wait()
	require.NoError(t, bus.Shutdown(t.Context()))
	wrong := a.disorder(t.Output())
	missing := a.missing(t.Output(), n)
	thawed := frozen.Add(2 * groupLease)
	if added.Before(thawed) {
		thawed = added // the members that were added gain partitions too
	}
	afterKill, afterFreeze := a.takeover(killed, frozen), a.takeover(frozen, thawed)
	fmt.Fprintf(t.Output(), "%s: killed at %s, frozen at %s, added at %s\n", k.name, killed.Format("05.000"), frozen.Format("05.000"), added.Format("05.000"))
	fmt.Fprintf(t.Output(), "%s: %d events of %d keys, %d handled, %d runs, %d handled again; %d out of order; %d unsettled; the last one %v after the last was published\n"+
		"%s: all partitions had an owner %v after the kill, %v after the freeze, and %v after two were added; the lease is %v\n",
		k.name, n, groupKeys, len(a.first), a.runs, a.again, wrong, s, took,
		k.name, afterKill, afterFreeze, a.takeover(added, time.Now()), groupLease)
	require.Zero(t, missing, "events that were not handled, of %d", n)
	require.Equal(t, n, len(a.first), "handled events that nobody published") //nolint:testifylint // Len would print the map
	require.Greater(t, a.runs, n+n/60, "some runs have failed")
	require.Zero(t, wrong, "runs before an earlier event of their key was handled")
	require.Zero(t, s, "events that are not settled")
	require.Positive(t, afterKill, "partitions have moved")
	require.Less(t, afterKill, groupLease+4*time.Second)
	require.Less(t, afterFreeze, groupLease+4*time.Second)
}

// groupStats returns how many events of the group are not settled.
func groupStats(ctx context.Context, b backend.Backend) (left int64, err error) {
	for i := range groupPartitions {
		s, err := backend.StatsOf(ctx, b, fmt.Sprintf("orders.partition-%d", i), "billing")
		if err != nil {
			return 0, err
		}
		left += s.Lag + s.Unacked
	}
	return left, nil
}
