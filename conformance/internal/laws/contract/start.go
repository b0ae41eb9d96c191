package contract

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var startLaws = []law.Law{
	{
		ID: "D05", Name: "start-earliest", Promise: "a new group that starts earliest gets what the topic has kept",
		Faults: []string{"start-latest"}, Test: startEarliest,
	}, {
		ID: "D06", Name: "start-latest", Promise: "a new group that starts latest gets the messages published after Attach returned, and no earlier ones",
		Faults: []string{"attach-later"}, Test: startLatest,
	}, {
		ID: "C14", Name: "start-after", Promise: "a new group that starts after a position gets the messages that follow it",
		Faults: []string{"start-latest"}, Test: startAfter,
	}, {
		ID: "C15", Name: "start-once", Promise: "Start is used only when the group is created",
		Faults: []string{"start-every-time"}, Test: startOnce,
	}, {
		ID: "D07", Name: "position-kept", Promise: "a group continues where it left off after all its members have left",
		Faults: []string{"start-every-time"}, Test: positionKept,
	}, {
		ID: "C59", Name: "start-never-issued", Promise: "a Start at a position that the backend cannot have issued is refused, and neither creates nor changes a group",
		Faults: []string{"start-latest", "attach-creates-first"}, Test: startNeverIssued,
	},
}

func startEarliest(e *law.Env) {
	keeps := e.AttachAs(backend.Config{Group: "keeps", Start: backend.StartLatest})
	want := law.IDsOf(e.PublishN(5))
	src := e.Attach("g")
	ds := e.Receive(src, 5)
	if got := law.IDs(ds); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
	e.Ack(src, ds...)
	e.Ack(keeps, e.Receive(keeps, 5)...)
	e.Maintain("g")
	e.Publish(&backend.Message{ID: "last"})
	for late := e.Attach("late"); ; { // One fails if it gets a message that the topic no longer keeps
		if d := e.One(late); d.ID == "last" {
			return
		}
	}
}

// startLatest checks StartLatest. Another goroutine publishes during Attach, and its
// messages may be delivered or not, so the law checks only messages whose Publish ended
// before Attach began, or began after Attach ended.
func startLatest(e *law.Env) {
	for round := range 3 {
		group := string(rune('a' + round))
		before := e.Publish(law.Numbered(group+"-before-", 5)...)
		stop, stopped := make(chan struct{}), make(chan error, 1)
		go func() {
			var err error
			for i := 0; err == nil; i++ {
				select {
				case <-stop:
					stopped <- nil
					return
				case <-time.After(100 * time.Microsecond):
					err = e.Send(&backend.Message{ID: group + "-meanwhile"})
				}
			}
			stopped <- err
		}()
		time.Sleep(time.Millisecond)
		src := e.AttachAs(backend.Config{Group: group, Start: backend.StartLatest})
		after := law.IDsOf(e.Publish(law.Numbered(group+"-after-", 5)...))
		close(stop)
		e.Must(<-stopped)
		var got []string
		for len(got) < len(after) {
			d := e.One(src)
			e.Ack(src, d)
			if slices.Contains(law.IDsOf(before), d.ID) {
				e.Failf("got %s, which was published before Attach", d.ID)
			}
			if slices.Contains(after, d.ID) {
				got = append(got, d.ID)
			}
		}
		if !slices.Equal(got, after) {
			e.Failf("got %v, want %v", got, after)
		}
	}
}

func startAfter(e *law.Env) {
	keeps := e.AttachAs(backend.Config{Group: "keeps", Start: backend.StartLatest})
	ms := e.PublishN(2)
	e.Ack(keeps, e.Receive(keeps, 2)...)
	e.Maintain("keeps") // may trim the first two messages
	ms = append(ms, e.Publish(law.Numbered("more-", 8)...)...)
	for _, i := range []int{1, 4, 2, 9} {
		src := e.AttachAs(backend.Config{Group: "after-" + ms[i].ID, Start: backend.StartAfter(ms[i].Position)})
		want := law.IDsOf(ms[i+1:])
		if got := law.IDs(e.Receive(src, len(want))); !slices.Equal(got, want) {
			e.Failf("after %s: got %v, want %v", ms[i].ID, got, want)
		}
		e.Nothing(src, e.Lease/10, "there are no more after "+ms[i].ID)
	}
}

func startOnce(e *law.Env) {
	first := e.Attach("g")
	want := law.IDsOf(e.PublishN(4))
	e.Ack(first, e.Receive(first, 1)...)
	late := e.AttachAs(backend.Config{Group: "g", Start: backend.StartLatest})
	if got := law.IDs(e.Receive(late, 3)); !slices.Equal(got, want[1:]) {
		e.Failf("got %v, want what the group has not been handed: %v", got, want[1:])
	}
}

func positionKept(e *law.Env) {
	first := e.Attach("g")
	want := law.IDsOf(e.PublishN(6))
	e.Ack(first, e.Receive(first, 2)...)
	e.Must(first.Close())
	e.Publish(&backend.Message{ID: "while nobody is there"})
	want = append(want, "while nobody is there")
	for _, start := range []backend.Start{backend.StartLatest, backend.StartEarliest} {
		src := e.AttachAs(backend.Config{Group: "g", Start: start})
		ds := e.Receive(src, 2)
		if got := law.IDs(ds); !slices.Equal(got, want[2:4]) {
			e.Failf("got %v, want %v", got, want[2:4])
		}
		e.Ack(src, ds...)
		e.Must(src.Close())
		want = want[2:]
	}
}

func startNeverIssued(e *law.Env) {
	e.AttachAs(backend.Config{Group: "keeps"})
	ms := e.PublishN(3)
	never := []backend.Start{"sideways"}
	for _, position := range []string{"no position", "-1", ms[1].Position + "x", " " + ms[1].Position} {
		never = append(never, backend.StartAfter(position))
	}
	for _, start := range never {
		refused(e, backend.Config{Group: "g", Start: start, Lease: e.Lease}, fmt.Sprintf("Attach with Start %q", start))
	}
	src := e.Attach("g")
	if got, want := law.IDs(e.Receive(src, 3)), law.IDsOf(ms); !slices.Equal(got, want) {
		e.Failf("got %v, want all of a group that was not made before: %v", got, want)
	}
	if !e.Claims(law.NeedVerb[backend.Admin]()) {
		return
	}
	v := e.Verbs()
	for _, start := range never {
		e.Is(fmt.Sprintf("ResetGroup to %q", start), claimed(e, v.ResetGroup(e.Context(), law.Topic, "g", start)), backend.ErrRefused)
	}
	e.Nothing(src, e.Lease/4, "a reset that was refused changes nothing")
}

// refused expects ErrRefused from Attach with the Group, the Start and the Lease of c, even
// if they are zero.
func refused(e *law.Env, c backend.Config, what string) {
	e.Helper()
	c.Topic, c.MaxInFlight, c.ConfirmAcks = law.Topic, 1000, true
	src, err := e.Backend.Attach(e.Context(), c)
	if err == nil {
		e.Cleanup(func() { src.Close() })
	}
	e.Is(what, err, backend.ErrRefused)
}

// startAtLaws are about starting at a time.
var startAtLaws = []law.Law{
	{
		ID: "C95", Name: "start-at", Promise: "a new group that starts at a time gets the messages stored at or after it, and no earlier ones",
		Faults: []string{"start-latest"}, Test: startAt,
	}, {
		ID: "C96", Name: "start-at-ends", Promise: "a time before all messages means the oldest message, and a time in the future means the next message",
		Faults: []string{"start-latest"}, Test: startAtEnds,
	}, {
		ID: "C97", Name: "reset-at", Promise: "a group that is reset to a time starts over with the messages stored at or after it",
		Needs:  []law.Need{law.NeedVerb[backend.Admin]()},
		Faults: []string{"start-latest"}, Test: resetAt,
	}, {
		ID: "C98", Name: "read-at", Promise: "Read begins where a group with the same Start would",
		Needs:  []law.Need{law.NeedVerb[backend.Reader]()},
		Faults: []string{"start-latest", "read-from-included"}, Test: readAt,
	},
}

// epochs publishes 30 messages in three parts. It returns them, and a time between the first
// and the second part, and another one between the second and the third, by the clock of the
// backend.
func epochs(e *law.Env) (ms []*backend.Message, first, second time.Time) {
	e.Helper()
	part := func(prefix string) { ms = append(ms, e.Publish(law.Numbered(prefix, 10)...)...) }
	between := func() (now time.Time) {
		time.Sleep(50 * time.Millisecond) // some brokers count in milliseconds
		now = e.Now()
		time.Sleep(50 * time.Millisecond)
		return now
	}
	e.Attach("keeps")
	part("a-")
	first = between()
	part("b-")
	second = between()
	part("c-")
	return ms, first, second
}

func startAt(e *law.Env) {
	ms, first, second := epochs(e)
	for i, at := range []time.Time{first, second} {
		src := e.AttachAs(backend.Config{Group: string(rune('a' + i)), Start: backend.StartAt(at)})
		want := law.IDsOf(ms[10*(i+1):])
		if got := law.IDs(e.Receive(src, len(want))); !slices.Equal(got, want) {
			e.Failf("a group that starts at time %d of 2 got %v, want %v", i+1, got, want)
		}
		e.Nothing(src, e.Lease/10, "it got all from its start on")
	}
}

func startAtEnds(e *law.Env) {
	ms, _, second := epochs(e)
	old := e.AttachAs(backend.Config{Group: "old", Start: backend.StartAt(time.Unix(1, 0))})
	if got, want := law.IDs(e.Receive(old, len(ms))), law.IDsOf(ms); !slices.Equal(got, want) {
		e.Failf("a group that starts in 1970 got %v, want %v", got, want)
	}
	future := e.AttachAs(backend.Config{Group: "future", Start: backend.StartAt(second.Add(time.Hour))})
	e.Nothing(future, e.Lease/10, "it starts in an hour, so with the next message")
	e.Publish(&backend.Message{ID: "next"})
	if d := e.One(future); d.ID != "next" {
		e.Failf("a group that starts in an hour got %q, want the next message", d.ID)
	}
}

func resetAt(e *law.Env) {
	ms, first, second := epochs(e)
	src := e.Attach("g")
	e.Ack(src, e.Receive(src, len(ms))...)
	for i, at := range []time.Time{second, first} {
		e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartAt(at)))
		want := law.IDsOf(ms[20-10*i:])
		ds := e.Receive(src, len(want))
		if got := law.IDs(ds); !slices.Equal(got, want) {
			e.Failf("a group that was reset to a time got %v, want %v", got, want)
		}
		e.Ack(src, ds...)
	}
}

func readAt(e *law.Env) {
	ms, first, second := epochs(e)
	readsFrom(e, backend.StartAt(first), 100, ms[10:])
	readsFrom(e, backend.StartAt(second), 3, ms[20:23])
	readsFrom(e, backend.StartAt(time.Unix(1, 0)), 100, ms)
	readsFrom(e, backend.StartAt(second.Add(time.Hour)), 100, nil)
	readsFrom(e, backend.StartAfter(ms[4].Position), 2, ms[5:7])
	readsFrom(e, backend.StartLatest, 100, nil)
	readsFrom(e, backend.StartAfter(ms[29].Position), 100, nil)
}
