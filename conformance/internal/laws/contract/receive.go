package contract

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var receiveLaws = []law.Law{
	{
		ID: "C08", Name: "at-most-max", Promise: "Receive returns at most max deliveries",
		Faults: []string{"receive-exceeds"}, Test: atMostMax,
	}, {
		ID: "C64", Name: "max-of-none", Promise: "Receive with a max of zero or less returns at once and takes nothing",
		Faults: []string{"receive-exceeds"}, Test: maxOfNone,
	}, {
		ID: "C09", Name: "come-backs-first", Promise: "redelivered messages are handed out before new ones",
		Faults: []string{"receive-reverses"}, Test: comeBacksFirst,
	}, {
		ID: "C10", Name: "equal-due-by-position", Promise: "of the messages that are due together when Receive begins, the one with the lower position is delivered first",
		Faults: []string{"receive-reverses"}, Test: equalDueByPosition,
	}, {
		ID: "D08", Name: "attempt-sequence", Promise: "attempts are numbered 1, 2, 3, … in each group, if the backend counts attempts",
		Faults: []string{"receive-miscounts"}, Test: attemptSequence,
	}, {
		ID: "C68", Name: "redelivered", Promise: "a delivery says whether the message was delivered to the group before, because its lease expired or it was given back, even with Refund",
		Faults: []string{"receive-forgets-redelivered"}, Test: redelivered,
	}, {
		ID: "C11", Name: "cancel-loses-nothing", Promise: "cancelling a Receive loses no delivery",
		Faults: []string{"receive-drops-on-cancel"}, Test: cancelLosesNothing,
	}, {
		ID: "C78", Name: "lost-leases-free", Promise: "a member whose deliveries others have taken over and acknowledged can receive as many again",
		Faults: []string{"receive-counts-lost-as-held"}, Test: lostLeasesFree,
	},
}

func atMostMax(e *law.Env) {
	src := e.Attach("g")
	const n = 50
	e.PublishN(n)
	var got []string
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience())
	defer cancel()
	for i := 0; len(got) < n && ctx.Err() == nil; i++ {
		got = append(got, law.IDs(e.Take(ctx, src, 1+i%7))...)
	}
	if want := law.IDsOf(law.Numbered("", n)); !slices.Equal(got, want) {
		e.Failf("got  %v\nwant %v", got, want)
	}
}

func maxOfNone(e *law.Env) {
	src := e.Attach("g")
	takesNone(e, src)
	want := law.IDsOf(e.PublishN(2))
	takesNone(e, src)
	ds := e.Receive(src, 2)
	if got := law.IDs(ds); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
	e.Attempt(ds[0], 1)
}

// takesNone expects that a Receive with a limit of 0 or less returns immediately.
func takesNone(e *law.Env, src backend.Source) {
	e.Helper()
	for _, max := range []int{0, -1} {
		start := time.Now()
		ds, err := src.Receive(e.Bounded(), max, 0)
		e.Must(err)
		e.By(start, 0, fmt.Sprintf("Receive of at most %d returned", max))
		if len(ds) > 0 {
			e.Failf("Receive of at most %d: got %v, want none", max, law.IDs(ds))
		}
	}
}

func comeBacksFirst(e *law.Env) {
	src := e.Attach("g")
	old := e.Publish(law.Numbered("old", 2)...)
	e.Receive(src, 2)
	e.Publish(law.Numbered("new", 2)...)
	time.Sleep(e.Lease + e.Soon())
	got := law.IDs(e.Receive(src, 4))
	if want := append(law.IDsOf(old), law.IDsOf(law.Numbered("new", 2))...); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func equalDueByPosition(e *law.Env) {
	src := e.Attach("g")
	const n = 20
	want := law.IDsOf(e.PublishN(n))
	e.Receive(src, n) // if one Receive returns all messages, their leases expire at the same time
	time.Sleep(e.Lease + e.Soon())
	if got := law.IDs(e.Receive(src, n)); !slices.Equal(got, want) {
		e.Failf("got  %v\nwant %v", got, want)
	}
}

func attemptSequence(e *law.Env) {
	one, two := e.Attach("one"), e.Attach("two")
	e.PublishN(2)
	for want := 1; want <= 3; want++ {
		for _, d := range e.Receive(one, 2) {
			e.Attempt(d, want)
		}
	}
	for _, d := range e.Receive(two, 2) {
		e.Attempt(d, 1)
	}
}

func redelivered(e *law.Env) {
	one, two := e.Attach("one"), e.Attach("two")
	v, delays := backend.As[backend.Delayer](one)
	e.PublishN(1)
	for round := range 4 {
		d := e.One(one)
		if d.Redelivered != (round > 0) {
			e.Failf("delivery %d: got Redelivered %v", round+1, d.Redelivered)
		}
		if delays && round < 2 { // in later rounds the lease expires, because the law does not call Delay
			e.Verb(v.Delay(e.Context(), []backend.Delayed{{Delivery: d, Refund: round == 0}}))
		}
	}
	if d := e.One(e.Attach("one")); !d.Redelivered {
		e.Failf("the first delivery to another member: got not Redelivered, want Redelivered")
	}
	if d := e.One(two); d.Redelivered {
		e.Failf("the first delivery in the other group: got Redelivered, want not")
	}
}

func lostLeasesFree(e *law.Env) {
	const n = 4
	one := e.AttachAs(backend.Config{Group: "g", MaxInFlight: n, Lease: e.Lease / 2})
	two := e.AttachAs(backend.Config{Group: "g", Lease: e.Lease / 2})
	for range 3 {
		e.PublishN(n)
		e.Receive(one, n)
		e.Ack(two, e.Receive(two, n)...)
	}
}

// cancelLosesNothing checks that a cancelled Receive loses no messages. Each round
// publishes while the context of a Receive ends. If the Receive took messages without
// returning them, they would be redelivered one lease later.
func cancelLosesNothing(e *law.Env) {
	const rounds, each = 25, 4
	lease := 4 * e.Lease
	src := e.AttachAs(backend.Config{Group: "g", Lease: lease})
	published, got := map[string]time.Time{}, 0
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	check := func(ds []backend.Delivery) {
		for _, d := range ds {
			if took := time.Since(published[d.ID]); took >= lease || d.Attempt > 1 {
				e.Failf("message %s was received after %v as attempt %d, want the first within the lease of %v (seed %d)", d.ID, took, d.Attempt, lease, seed)
			}
			got++
		}
		e.Ack(src, ds...)
	}
	for round := range rounds {
		batch := law.Numbered(string(rune('a'+round)), each)
		for _, m := range batch {
			published[m.ID] = time.Now()
		}
		ctx, cancel := context.WithTimeout(e.Context(), time.Duration(random.Int64N(int64(3*time.Millisecond))))
		errs := make(chan error, 1)
		go func() {
			time.Sleep(time.Millisecond)
			errs <- e.Send(batch...)
		}()
		ds := e.Take(ctx, src, each*rounds)
		cancel()
		e.Must(<-errs)
		time.Sleep(time.Millisecond) // a late read may take messages after its context is done
		check(ds)
	}
	for got < rounds*each {
		check(e.Receive(src, 1))
	}
	e.Nothing(src, e.Lease/2, "all were received")
}

var byteLaws = []law.Law{
	{
		ID: "C83", Name: "at-most-max-bytes", Promise: "Receive returns at most maxBytes, or a single larger message; the rest comes first in the next Receive, in order, and has used no attempt",
		Faults: []string{"receive-exceeds"}, Test: atMostMaxBytes,
	}, {
		ID: "C84", Name: "redelivered-max-bytes", Promise: "Receive respects maxBytes for redelivered messages too, in order, and the rest has used no attempt",
		Faults: []string{"receive-exceeds"}, Test: redeliveredMaxBytes,
	},
}

// A sizing has the messages and the bounds of a law about maxBytes. Messages have 100 B to
// 200 KiB and bounds 1 KiB to 1 MiB, so some messages are larger than their bound.
type sizing struct {
	*law.Env
	seed   uint64
	random *rand.Rand
	ms     []*backend.Message
}

// newSizing publishes n messages. The first small of them have 100 B.
func newSizing(e *law.Env, n, small int) *sizing {
	s := &sizing{Env: e, seed: rand.Uint64(), ms: law.Numbered("", n)}
	s.random = rand.New(rand.NewPCG(s.seed, 0))
	for i, m := range s.ms {
		m.Payload = make([]byte, 100)
		if i >= small {
			m.Payload = make([]byte, s.upTo(100, 200<<10))
		}
	}
	for part := range slices.Chunk(s.ms, 20) {
		e.Publish(part...)
	}
	return s
}

// upTo returns a random number. Each power of two is equally probable.
func (s *sizing) upTo(least, most float64) int {
	return int(least * math.Pow(most/least, s.random.Float64()))
}

// receive expects all messages in order, with this attempt and within the bound of each
// Receive. The first bound is 64 KiB, until the given number of messages has come.
func (s *sizing) receive(src backend.Source, attempt, first int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), s.Patience())
	defer cancel()
	got, bound, last := make([]string, 0, len(s.ms)), 64<<10, time.Now()
	for len(got) < len(s.ms) && ctx.Err() == nil {
		ds := s.TakeBytes(ctx, src, 20, int64(bound))
		if len(ds) == 0 {
			if time.Since(last) > 2*s.Soon() {
				break
			}
			time.Sleep(law.Pause)
			continue // with the same bound, because the message may be larger
		}
		last = time.Now()
		size := 0
		for i := range ds {
			size += ds[i].Size()
			s.Attempt(ds[i], attempt)
		}
		if size > bound && len(ds) > 1 {
			s.Failf("got %d messages of %d bytes, want at most %d (seed %d)", len(ds), size, bound, s.seed)
		}
		got = append(got, law.IDs(ds)...)
		s.Ack(src, ds...)
		if len(got) >= first {
			bound = s.upTo(1<<10, 1<<20)
		}
	}
	if want := law.IDsOf(s.ms); !slices.Equal(got, want) {
		s.Failf("got  %v\nwant %v (seed %d)", got, want, s.seed)
	}
}

// atMostMaxBytes tests law C83. Sizes change suddenly.
func atMostMaxBytes(e *law.Env) {
	src := e.AttachAs(backend.Config{Group: "g", Lease: 40 * e.Lease})
	const n, small = 100, 25
	newSizing(e, n, small).receive(src, 1, small)
}

func redeliveredMaxBytes(e *law.Env) {
	src := e.Attach("g")
	const n = 30
	s := newSizing(e, n, 0)
	e.Receive(src, n)
	time.Sleep(e.Lease + e.Soon())
	s.receive(src, 2, 0)
}
