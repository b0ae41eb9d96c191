package contract

import (
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// peerLaws are about members in other processes. Some members die or are frozen.
var peerLaws = []law.Law{
	{
		ID: "L03", Name: "frozen-member", Promise: "what a frozen member holds goes to another when its lease has expired, and its late calls change nothing, except for an acknowledgement",
		Needs:  []law.Need{law.NeedPeer, law.NeedFreeze, law.NeedDelayer},
		Faults: []string{"unfenced", "lease-long"}, Test: frozenMember,
	}, {
		ID: "L04", Name: "no-steal", Promise: "an Extend that arrives too late takes nothing from the new holder",
		Needs:  []law.Need{law.NeedPeer, law.NeedFreeze, law.NeedExtender},
		Faults: []string{"unfenced"}, Test: noSteal,
	}, {
		ID: "L05", Name: "dead-member", Promise: "what a dead member held goes to others when its lease has expired, not before and soon after",
		Needs:  []law.Need{law.NeedPeer, law.NeedDown},
		Faults: []string{"lease-long"}, Test: deadMember,
	}, {
		ID: "L12", Name: "leases-of-peers", Promise: "members in different processes may have different leases; the holder's lease counts",
		Needs:  []law.Need{law.NeedPeer},
		Faults: []string{"lease-of-the-group"}, Test: leasesOfPeers,
	}, {
		ID: "T06", Name: "delayer-dies", Promise: "a delayed message is redelivered when it is due even if the process that delayed it has died",
		Needs:  []law.Need{law.NeedPeer, law.NeedDown, law.NeedDelayer},
		Faults: []string{"delay-ignored", "delay-truncated"}, Test: delayerDies,
	}, {
		ID: "L07", Name: "identity-churn", Promise: "members that come, go and die many times leave few traces, and nothing is lost",
		Needs:  []law.Need{law.NeedPeer, law.NeedDown, law.NeedVerb[backend.Statser](), law.NeedVerb[backend.Maintainer]()},
		Faults: []string{"publish-loses", "closed-works"}, Test: identityChurn,
	}, {
		ID: "D19", Name: "peer-wakes", Promise: "a waiting member soon learns that another process has published, given a message back, or reset or deleted its group",
		Needs:  []law.Need{law.NeedPeer},
		Faults: []string{"delay-ignored", "reset-ignored"}, Test: peerWakes,
	},
}

func frozenMember(e *law.Env) {
	p, one := e.AttachPeer(backend.Config{Group: "g"})
	two := e.AttachAs(backend.Config{Group: "g", Lease: 3 * e.Lease})
	e.PublishN(2)
	start := time.Now()
	stale := e.Receive(one, 2)
	last := time.Now()
	thaw := e.Freeze(p)
	ds := e.Receive(two, 2)
	e.NotBefore(start, e.Lease, "another member took over")
	e.By(last, 3*e.Lease, "another member took over") // a broker with one lease for a group uses the longest
	ctx := e.Within(e.Lease / 4)
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
				e.Errorf("%s of a member that is held up: got no error", what)
			}
		})
	}
	wg.Wait()
	e.By(sent, e.Lease/4, "the calls of a member that is held up returned")
	thaw()
	e.Nothing(two, e.Lease, "another member holds both")
	e.Ack(two, ds...)
	e.Nothing(two, e.Lease+e.Soon(), "both are acknowledged")
	e.Persist("Delay of what another member has settled", func() error {
		err := backend.ErrorAt(e.Delay(one, 0, stale[1]), 0)
		if law.Passing(err) {
			return err
		}
		e.Is("Delay of what another member has settled", err, backend.ErrLeaseLost)
		return nil
	})
}

func noSteal(e *law.Env) {
	p, one := e.AttachPeer(backend.Config{Group: "g"})
	two := e.AttachAs(backend.Config{Group: "g", Lease: 2 * e.Lease})
	e.PublishN(1)
	start := time.Now()
	stale := e.One(one)
	thaw := e.Freeze(p)
	late := make(chan error, 1)
	ctx := e.Within(e.Lease / 4)
	go func() {
		v, _ := backend.As[backend.Extender](one)
		late <- v.Extend(ctx, []*backend.Delivery{&stale})
	}()
	e.One(two)
	since := time.Now()
	if err := <-late; err == nil {
		e.Failf("Extend of a member that is held up: got no error")
	}
	thaw()
	e.One(two)
	e.NotBefore(start, 3*e.Lease, "it came back from its new holder")
	e.By(since, 2*e.Lease, "it came back from its new holder")
}

func deadMember(e *law.Env) {
	p, one := e.AttachPeer(backend.Config{Group: "g"})
	two := e.Attach("g")
	want := law.IDsOf(e.PublishN(10))
	start := time.Now()
	e.Receive(one, 10)
	last := time.Now()
	e.Down(p)
	ds := e.Receive(two, 1)
	e.NotBefore(start, e.Lease, "the first was taken")
	ds = append(ds, e.Receive(two, 9)...)
	e.By(last, e.Lease, "the last was taken")
	if got := law.IDs(ds); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		e.Failf("got %v, want each once: %v", got, want)
	}
	e.Ack(two, ds...)
	e.Nothing(two, e.Lease, "all are acknowledged")
}

func leasesOfPeers(e *law.Env) {
	const times = 3
	_, long := e.AttachPeer(backend.Config{Group: "g", Lease: times * e.Lease})
	_, short := e.AttachPeer(backend.Config{Group: "g", Lease: e.Lease / 2})
	e.PublishN(1)
	start := time.Now()
	e.One(long)
	e.One(short)
	e.NotBefore(start, times*e.Lease, "it was taken from the member with the longer lease")
	e.By(start, times*e.Lease, "it was taken from the member with the longer lease")
	taken := time.Now()
	e.Ack(long, e.One(long))
	e.By(taken, times*e.Lease, "it was taken from the member with the shorter lease") // a broker with one lease for a group uses the longest
	e.Nothing(short, e.Lease/2, "it is acknowledged")
}

func delayerDies(e *law.Env) {
	p, one := e.AttachPeer(backend.Config{Group: "g"})
	two := e.Attach("g")
	e.PublishN(1)
	start := time.Now()
	e.Verb(e.Delay(one, 2*e.Lease, e.One(one)))
	e.Down(p)
	e.Ack(two, e.One(two))
	e.NotBefore(start, 2*e.Lease, "it came back")
	e.By(start, 2*e.Lease, "it came back")
}

// identityChurn attaches many members. Some settle their messages, some close without
// settling, and some die.
func identityChurn(e *law.Env) {
	const cycles, dying = 40, 10
	left := map[string]bool{}
	acked := func(src backend.Source, ds ...backend.Delivery) {
		e.Ack(src, ds...)
		for _, d := range ds {
			if !left[d.ID] {
				e.Failf("message %s was redelivered after it was acknowledged", d.ID)
			}
			delete(left, d.ID)
		}
	}
	for i := range cycles {
		for _, m := range e.Publish(law.Numbered(string(rune('a'+i)), 1)...) {
			left[m.ID] = true
		}
		if i%dying == 0 {
			p, src := e.AttachPeer(backend.Config{Group: "g"})
			e.One(src)
			e.Down(p)
			continue
		}
		src := e.Attach("g")
		if d := e.One(src); i%3 != 0 {
			acked(src, d)
		}
		e.Must(src.Close())
	}
	last := e.Attach("g")
	for end := time.Now().Add(e.Patience()); len(left) > 0; {
		if time.Now().After(end) {
			e.Failf("%d messages are lost: %v", len(left), left)
		}
		acked(last, e.Take(e.Within(e.Lease), last, 100)...)
	}
	most := int64(1 + cycles/dying)
	for end := time.Now().Add(e.Patience()); ; time.Sleep(e.Lease / 10) {
		e.Maintain("g")
		got := stats(e).Members
		if got <= most {
			return
		}
		if time.Now().After(end) {
			e.Failf("got %d members, want at most %d: one, and those that died", got, most)
		}
	}
}

func peerWakes(e *law.Env) {
	long := backend.Config{Group: "g", Lease: 5 * e.Lease}
	p, src := e.AttachPeer(long)
	other, own := e.AttachTo(p, e.Config(long)), e.AttachAs(long)
	e.AttachAs(backend.Config{Group: "keeps"})
	learned := func(waits backend.Source, what string, after time.Duration, do func()) law.Received {
		e.Helper()
		waiting := e.Background(e.Bounded(), waits, 1)
		time.Sleep(e.Lease / 4)
		start := time.Now()
		do()
		r := <-waiting
		e.By(start, after, "a member that waits learned that another process "+what)
		return r
	}
	r := learned(src, "has published", 0, func() { e.PublishN(1) })
	e.Must(r.Err)
	stale := r.Deliveries[0]
	if _, ok := backend.As[backend.Delayer](own); ok {
		e.Publish(&backend.Message{ID: "back"})
		d, wait := e.One(own), e.Lease/4
		r := learned(src, "has given back", wait, func() { e.Verb(e.Delay(own, wait, d)) })
		e.Must(r.Err)
	}
	if !e.Claims(law.NeedVerb[backend.Admin]()) {
		return
	}
	r = learned(other, "has reset the group", 0, func() {
		e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartEarliest))
	})
	e.Must(r.Err)
	if e.Limits.FencedAcks {
		unheld(e, src, "a delivery from before another process has reset the group", stale, backend.ErrLeaseLost)
	}
	if _, ok := backend.As[backend.Delayer](own); ok {
		e.One(other) // the message that was given back, so that the member waits for more
	}
	r = learned(other, "has deleted the group", 0, func() { e.Verb(e.Verbs().DeleteGroup(e.Context(), law.Topic, "g")) })
	e.Is("Receive", r.Err, backend.ErrGone)
}
