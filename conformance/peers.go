package conformance

import (
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Members in other processes, some of which die or are held up.
var peerLaws = []law{
	{
		id: "L03", name: "frozen-member", promise: "what a member holds that is held up goes to another when its lease has passed, and what it says too late changes nothing, but for an acknowledgement",
		needs:     []need{needPeer, needFreeze, needDelayer},
		saboteurs: []string{"unfenced-delays", "long-leases"}, driver: frozenMember,
	}, {
		id: "L04", name: "no-steal", promise: "an Extend that arrives too late takes nothing from the new holder",
		needs:     []need{needPeer, needFreeze, needExtender},
		saboteurs: []string{"unfenced-extends"}, driver: noSteal,
	}, {
		id: "L05", name: "dead-member", promise: "what a member held that died goes to others when its lease has passed: not before, and soon after",
		needs:     []need{needPeer, needDown},
		saboteurs: []string{"long-leases", "short-leases"}, driver: deadMember,
	}, {
		id: "L12", name: "leases-of-peers", promise: "members in different processes may have different leases: that of the holder counts",
		needs:     []need{needPeer},
		saboteurs: []string{"shortest-lease-counts"}, driver: leasesOfPeers,
	}, {
		id: "T06", name: "delayer-dies", promise: "a delayed message comes back when it is due even if the process that delayed it has died",
		needs:     []need{needPeer, needDown, needDelayer},
		saboteurs: []string{"ignores-delays", "delays-longer"}, driver: delayerDies,
	}, {
		id: "L07", name: "identity-churn", promise: "members that come, go and die many times leave few traces, and nothing is lost",
		needs:     []need{needPeer, needDown, needStatser, needMaintainer},
		saboteurs: []string{"loses-some", "members-never-leave"}, driver: identityChurn,
	},
}

func frozenMember(e *driverEnv) {
	p, one := e.attachPeer(backend.Config{Group: "g"})
	two := e.attachAs(backend.Config{Group: "g", Lease: 3 * e.lease})
	e.publishN(2)
	start := time.Now()
	stale := e.receive(one, 2)
	last := time.Now()
	thaw := e.freeze(p)
	ds := e.receive(two, 2)
	e.notBefore(start, e.lease, "another member took over")
	e.by(last, 3*e.lease, "another member took over") // where a group has one lease, it is the longest
	ctx := e.within(e.lease / 4)
	sent := time.Now()
	var wg sync.WaitGroup
	for what, call := range map[string]func() error{
		"Ack": func() error { return one.Ack(ctx, backend.Lend(stale[:1])) },
		"Delay": func() error {
			v, _ := backend.As[backend.Delayer](one)
			return v.Delay(ctx, []backend.Delayed{{Delivery: stale[1]}})
		},
	} {
		wg.Go(func() {
			if err := call(); err == nil {
				e.errorf("%s of a member that is held up: got no error", what)
			}
		})
	}
	wg.Wait()
	e.by(sent, e.lease/4, "the calls of a member that is held up returned")
	thaw()
	e.nothing(two, e.lease, "another member holds both")
	e.ack(two, ds...)
	e.nothing(two, e.lease+e.soon(), "both are acknowledged")
	e.persist("Delay of what another member has settled", func() error {
		err := backend.ErrorAt(e.delay(one, 0, stale[1]), 0)
		if passing(err) {
			return err
		}
		e.is("Delay of what another member has settled", err, backend.ErrLeaseLost)
		return nil
	})
}

func noSteal(e *driverEnv) {
	p, one := e.attachPeer(backend.Config{Group: "g"})
	two := e.attachAs(backend.Config{Group: "g", Lease: 2 * e.lease})
	e.publishN(1)
	start := time.Now()
	stale := e.one(one)
	thaw := e.freeze(p)
	late := make(chan error, 1)
	ctx := e.within(e.lease / 4)
	go func() {
		v, _ := backend.As[backend.Extender](one)
		late <- v.Extend(ctx, []*backend.Delivery{&stale})
	}()
	e.one(two)
	since := time.Now()
	if err := <-late; err == nil {
		e.failf("Extend of a member that is held up: got no error")
	}
	thaw()
	e.one(two)
	e.notBefore(start, 3*e.lease, "it came back from its new holder")
	e.by(since, 2*e.lease, "it came back from its new holder")
}

func deadMember(e *driverEnv) {
	p, one := e.attachPeer(backend.Config{Group: "g"})
	two := e.attach("g")
	want := idsOf(e.publishN(10))
	start := time.Now()
	e.receive(one, 10)
	last := time.Now()
	e.down(p)
	ds := e.receive(two, 1)
	e.notBefore(start, e.lease, "the first was taken")
	ds = append(ds, e.receive(two, 9)...)
	e.by(last, e.lease, "the last was taken")
	if got := ids(ds); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		e.failf("got %v, want each once: %v", got, want)
	}
	e.ack(two, ds...)
	e.nothing(two, e.lease, "all are acknowledged")
}

func leasesOfPeers(e *driverEnv) {
	const times = 3
	_, long := e.attachPeer(backend.Config{Group: "g", Lease: times * e.lease})
	_, short := e.attachPeer(backend.Config{Group: "g", Lease: e.lease / 2})
	e.publishN(1)
	start := time.Now()
	e.one(long)
	e.one(short)
	e.notBefore(start, times*e.lease, "it was taken from the member with the longer lease")
	e.by(start, times*e.lease, "it was taken from the member with the longer lease")
	taken := time.Now()
	e.ack(long, e.one(long))
	e.by(taken, times*e.lease, "it was taken from the member with the shorter lease") // or then, where a group has one lease
	e.nothing(short, e.lease/2, "it is acknowledged")
}

func delayerDies(e *driverEnv) {
	p, one := e.attachPeer(backend.Config{Group: "g"})
	two := e.attach("g")
	e.publishN(1)
	start := time.Now()
	e.verb(e.delay(one, 2*e.lease, e.one(one)))
	e.down(p)
	e.ack(two, e.one(two))
	e.notBefore(start, 2*e.lease, "it came back")
	e.by(start, 2*e.lease, "it came back")
}

// identityChurn lets members settle what they take, leave without that, or die.
func identityChurn(e *driverEnv) {
	const cycles, dying = 40, 10
	left := map[string]bool{}
	acked := func(src backend.Source, ds ...backend.Delivery) {
		e.ack(src, ds...)
		for _, d := range ds {
			if !left[d.ID] {
				e.failf("message %s came again after it was acknowledged", d.ID)
			}
			delete(left, d.ID)
		}
	}
	for i := range cycles {
		for _, m := range e.publish(numbered(string(rune('a'+i)), 1)...) {
			left[m.ID] = true
		}
		if i%dying == 0 {
			p, src := e.attachPeer(backend.Config{Group: "g"})
			e.one(src)
			e.down(p)
			continue
		}
		src := e.attach("g")
		if d := e.one(src); i%3 != 0 {
			acked(src, d)
		}
		e.must(src.Close())
	}
	last := e.attach("g")
	for end := time.Now().Add(e.patience()); len(left) > 0; {
		if time.Now().After(end) {
			e.failf("%d messages are lost: %v", len(left), left)
		}
		acked(last, e.take(e.within(e.lease), last, 100)...)
	}
	most := int64(1 + cycles/dying)
	for end := time.Now().Add(e.patience()); ; time.Sleep(e.lease / 10) {
		e.maintain("g")
		got := e.stats().Members
		if got <= most {
			return
		}
		if time.Now().After(end) {
			e.failf("got %d members, want at most %d: one, and those that died", got, most)
		}
	}
}
