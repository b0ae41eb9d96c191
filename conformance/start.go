package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var startLaws = []law{
	{
		id: "D05", name: "start-earliest", promise: "a new group that starts earliest sees what the topic keeps",
		saboteurs: []string{"always-latest"}, driver: startEarliest,
	}, {
		id: "D06", name: "start-latest", promise: "a new group that starts latest sees what is published after Attach returned, and nothing from before",
		saboteurs: []string{"always-earliest", "creates-groups-late"}, driver: startLatest,
	}, {
		id: "C14", name: "start-after", promise: "a new group that starts after a position sees what follows it",
		saboteurs: []string{"always-earliest", "always-latest"}, driver: startAfter,
	}, {
		id: "C15", name: "start-once", promise: "Start is used only when the group is created",
		saboteurs: []string{"starts-every-time"}, driver: startOnce,
	}, {
		id: "D07", name: "position-kept", promise: "a group goes on where it was after all its members have left",
		saboteurs: []string{"forgets-groups", "starts-every-time"}, driver: positionKept,
	}, {
		id: "C59", name: "start-never-issued", promise: "a Start at a position that the backend cannot have issued is refused, makes no group and changes none",
		saboteurs: []string{"starts-anywhere", "refuses-too-late"}, driver: startNeverIssued,
	},
}

func startEarliest(e *driverEnv) {
	e.attachAs(backend.Config{Group: "keeps", Start: backend.StartLatest})
	want := idsOf(e.publishN(5))
	if got := ids(e.receive(e.attach("g"), 5)); !slices.Equal(got, want) {
		e.failf("got %v, want %v", got, want)
	}
}

// A publisher is at work all the time; only what it began after Attach returned,
// and what it ended before Attach began, is certain.
func startLatest(e *driverEnv) {
	for round := range 3 {
		group := string(rune('a' + round))
		before := e.publish(numbered(group+"-before-", 5)...)
		stop, stopped := make(chan struct{}), make(chan error, 1)
		go func() {
			var err error
			for i := 0; err == nil; i++ {
				select {
				case <-stop:
					stopped <- nil
					return
				case <-time.After(100 * time.Microsecond):
					err = e.send(&backend.Message{ID: group + "-meanwhile"})
				}
			}
			stopped <- err
		}()
		time.Sleep(time.Millisecond)
		src := e.attachAs(backend.Config{Group: group, Start: backend.StartLatest})
		after := idsOf(e.publish(numbered(group+"-after-", 5)...))
		close(stop)
		e.must(<-stopped)
		var got []string
		for len(got) < len(after) {
			d := e.one(src)
			e.ack(src, d)
			if slices.Contains(idsOf(before), d.ID) {
				e.failf("got %s, which was published before Attach", d.ID)
			}
			if slices.Contains(after, d.ID) {
				got = append(got, d.ID)
			}
		}
		if !slices.Equal(got, after) {
			e.failf("got %v, want %v", got, after)
		}
	}
}

func startAfter(e *driverEnv) {
	e.attachAs(backend.Config{Group: "keeps", Start: backend.StartLatest})
	ms := e.publishN(10)
	for _, i := range []int{4, 0, 9} {
		src := e.attachAs(backend.Config{Group: "after-" + ms[i].ID, Start: backend.StartAfter(ms[i].Position)})
		want := idsOf(ms[i+1:])
		if got := ids(e.receive(src, len(want))); !slices.Equal(got, want) {
			e.failf("after %s: got %v, want %v", ms[i].ID, got, want)
		}
		e.nothing(src, e.lease/10, "there are no more after "+ms[i].ID)
	}
}

func startOnce(e *driverEnv) {
	first := e.attach("g")
	want := idsOf(e.publishN(4))
	e.ack(first, e.receive(first, 1)...)
	late := e.attachAs(backend.Config{Group: "g", Start: backend.StartLatest})
	if got := ids(e.receive(late, 3)); !slices.Equal(got, want[1:]) {
		e.failf("got %v, want what the group has not been handed: %v", got, want[1:])
	}
}

func positionKept(e *driverEnv) {
	first := e.attach("g")
	want := idsOf(e.publishN(6))
	e.ack(first, e.receive(first, 2)...)
	e.must(first.Close())
	e.publish(&backend.Message{ID: "while nobody is there"})
	want = append(want, "while nobody is there")
	for _, start := range []backend.Start{backend.StartLatest, backend.StartEarliest} {
		src := e.attachAs(backend.Config{Group: "g", Start: start})
		ds := e.receive(src, 2)
		if got := ids(ds); !slices.Equal(got, want[2:4]) {
			e.failf("got %v, want %v", got, want[2:4])
		}
		e.ack(src, ds...)
		e.must(src.Close())
		want = want[2:]
	}
}

func startNeverIssued(e *driverEnv) {
	e.attachAs(backend.Config{Group: "keeps"})
	ms := e.publishN(3)
	never := []backend.Start{"sideways"}
	for _, position := range []string{"no position", "-1", ms[1].Position + "x", " " + ms[1].Position} {
		never = append(never, backend.StartAfter(position))
	}
	for _, start := range never {
		e.refused(backend.Config{Group: "g", Start: start, Lease: e.lease}, fmt.Sprintf("Attach with Start %q", start))
	}
	src := e.attach("g")
	if got, want := ids(e.receive(src, 3)), idsOf(ms); !slices.Equal(got, want) {
		e.failf("got %v, want all of a group that was not made before: %v", got, want)
	}
	if !needAdmin.claimed(e) {
		return
	}
	v := e.verbs()
	for _, start := range never {
		e.is(fmt.Sprintf("ResetGroup to %q", start), e.fenced(v.ResetGroup(e.Context(), topic, "g", start)), backend.ErrRefused)
	}
	e.nothing(src, e.lease/4, "a reset that was refused changes nothing")
}

// refused expects that Attach refuses exactly this config, but for the topic.
func (e *driverEnv) refused(c backend.Config, what string) {
	e.Helper()
	c.Topic, c.MaxInFlight, c.ConfirmAcks = topic, 1000, true
	src, err := e.b.Attach(e.Context(), c)
	if err == nil {
		e.Cleanup(func() { src.Close() })
	}
	e.is(what, err, backend.ErrRefused)
}
