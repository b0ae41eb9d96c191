package conformance

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Groups and their members.
var groupLaws = []law{
	{
		id: "D02", name: "groups-independent", promise: "what one group settles, holds or never reads changes nothing for another",
		saboteurs: []string{"one-queue"}, driver: groupsIndependent,
	}, {
		id: "D03", name: "competing-once", promise: "members share a group: each message goes to one of them, once",
		saboteurs: []string{"broadcasts"}, driver: competingOnce,
	}, {
		id: "C13", name: "one-holder", promise: "no two members hold a message at the same time",
		saboteurs: []string{"broadcasts", "no-lease"}, driver: oneHolder,
	},
}

func groupsIndependent(e *driverEnv) {
	settles, holds, late := e.attach("settles"), e.attach("holds"), e.attach("late")
	want := idsOf(e.publishN(10))
	ds := e.receive(settles, 10)
	e.ack(settles, ds...)
	e.receive(holds, 4)
	e.nothing(settles, e.lease/4, "this group has settled all")
	got := e.receive(late, 10)
	if g := ids(got); !slices.Equal(g, want) {
		e.failf("got %v, want %v", g, want)
	}
	e.ack(late, got...)
	again := e.receive(holds, 10)
	e.ack(holds, again...)
	g := ids(again)
	slices.Sort(g)
	if !slices.Equal(g, want) {
		e.failf("the group that held some got %v, want each once: %v", g, want)
	}
}

func competingOnce(e *driverEnv) {
	const members, n = 8, 200
	var mu sync.Mutex
	seen := map[string]int{}
	total := 0
	ctx, cancel := context.WithTimeout(e.Context(), e.patience())
	defer cancel()
	errs := make(chan error, members)
	for range members {
		src := e.attachAs(backend.Config{Group: "g", Lease: 20 * e.lease})
		go func() {
			for ctx.Err() == nil {
				ds, err := src.Receive(ctx, 5)
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
					time.AfterFunc(e.lease/2, cancel) // for what there should not be
				}
				mu.Unlock()
			}
			errs <- nil
		}()
	}
	e.publishN(n)
	for range members {
		e.must(<-errs)
	}
	if len(seen) != n || total != n {
		e.failf("%d members received %d different messages, %d in all, want %d and %d", members, len(seen), total, n, n)
	}
}

func oneHolder(e *driverEnv) {
	one, two := e.attach("g"), e.attach("g")
	e.publishN(20)
	got := ids(e.receive(one, 10))
	got = append(got, ids(e.receive(two, 10))...)
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 20 {
		e.failf("two members hold %d different messages, want 20", n)
	}
	e.nothing(one, e.lease/4, "all are held")
	e.nothing(two, e.lease/4, "all are held")
}
