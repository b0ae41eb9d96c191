package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// groupLaws are about groups and their members.
var groupLaws = []law.Law{
	{
		ID: "D02", Name: "groups-independent", Promise: "what one group settles, holds or never reads does not affect other groups",
		Faults: []string{"group-shared"}, Test: groupsIndependent,
	}, {
		ID: "D03", Name: "competing-once", Promise: "the members of a group share its messages: each goes to one of them, once",
		Faults: []string{"group-per-member"}, Test: competingOnce,
	}, {
		ID: "C13", Name: "one-holder", Promise: "no two members hold a message at the same time",
		Faults: []string{"group-per-member"}, Test: oneHolder,
	}, {
		ID: "C71", Name: "attach-at-once", Promise: "members that attach to a new group at the same time all join one group",
		Faults: []string{"group-per-member"}, Test: attachAtOnce,
	},
}

func groupsIndependent(e *law.Env) {
	settles, holds, late := e.Attach("settles"), e.Attach("holds"), e.Attach("late")
	want := law.IDsOf(e.PublishN(10))
	ds := e.Receive(settles, 10)
	e.Ack(settles, ds...)
	e.Receive(holds, 4)
	e.Nothing(settles, e.Lease/4, "this group has settled all")
	got := e.Receive(late, 10)
	if g := law.IDs(got); !slices.Equal(g, want) {
		e.Failf("got %v, want %v", g, want)
	}
	e.Ack(late, got...)
	again := e.Receive(holds, 10)
	e.Ack(holds, again...)
	g := law.IDs(again)
	slices.Sort(g)
	if !slices.Equal(g, want) {
		e.Failf("the group that held some got %v, want each once: %v", g, want)
	}
}

func competingOnce(e *law.Env) {
	const members, n = 8, 200
	var mu sync.Mutex
	seen := map[string]int{}
	total := 0
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience())
	defer cancel()
	errs := make(chan error, members)
	for range members {
		src := e.AttachAs(backend.Config{Group: "g", Lease: 20 * e.Lease})
		go func() {
			for ctx.Err() == nil {
				ds, err := src.Receive(ctx, 5, 0)
				if err == nil {
					err = src.Ack(context.WithoutCancel(ctx), backend.Lend(ds))
				}
				if err != nil && ctx.Err() == nil {
					errs <- err
					return
				}
				mu.Lock()
				for _, d := range ds {
					seen[d.ID]++
					total++
				}
				if total >= n {
					time.AfterFunc(e.Lease/2, cancel) // leaves time for deliveries that must not happen
				}
				mu.Unlock()
			}
			errs <- nil
		}()
	}
	e.PublishN(n)
	for range members {
		e.Must(<-errs)
	}
	if len(seen) != n || total != n {
		e.Failf("%d members received %d different messages, %d in all, want %d and %d", members, len(seen), total, n, n)
	}
}

func oneHolder(e *law.Env) {
	one, two := e.Attach("g"), e.Attach("g")
	e.PublishN(20)
	got := law.IDs(e.Receive(one, 10))
	got = append(got, law.IDs(e.Receive(two, 10))...)
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 20 {
		e.Failf("two members hold %d different messages, want 20", n)
	}
	e.Nothing(one, e.Lease/4, "all are held")
	e.Nothing(two, e.Lease/4, "all are held")
}

func attachAtOnce(e *law.Env) {
	const members = 8
	for round := range 3 {
		c := e.Config(backend.Config{Topic: fmt.Sprintf("topic-%d", round), Group: "g"})
		sources, errs := make([]backend.Source, members), make([]error, members)
		var wg sync.WaitGroup
		for i := range members {
			wg.Go(func() { sources[i], errs[i] = e.Backend.Attach(e.Context(), c) })
		}
		wg.Wait()
		e.Must(errors.Join(errs...))
		want := law.Numbered("", members)
		for _, m := range want {
			m.Topic = c.Topic
		}
		e.Publish(want...)
		var got []string
		for _, src := range sources {
			got = append(got, e.One(src).ID)
		}
		slices.Sort(got)
		if !slices.Equal(got, law.IDsOf(want)) {
			e.Failf("%d members got %v, want one message each", members, got)
		}
		for _, src := range sources {
			e.Must(src.Close())
		}
	}
}
