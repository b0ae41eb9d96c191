package contract

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var statsLaws = []law.Law{
	{
		ID: "M03", Name: "stats-truth", Promise: "each number in Stats is exact or unknown",
		Needs:  []law.Need{law.NeedVerb[backend.Statser](), law.NeedDelayer},
		Faults: []string{"stats-lie"}, Test: statsTruth,
	}, {
		ID: "M03", Name: "stats-of-expired", Promise: "a message whose lease or delay has expired counts as in flight or delayed until a member receives it",
		Needs:  []law.Need{law.NeedVerb[backend.Statser](), law.NeedDelayer},
		Faults: []string{"stats-lie"}, Test: statsOfExpired,
	}, {
		ID: "M03", Name: "stats-of-start", Promise: "Lag counts from where a group started, not from where its topic began",
		Needs:  []law.Need{law.NeedVerb[backend.Statser]()},
		Faults: []string{"stats-lie"}, Test: statsOfStart,
	}, {
		ID: "M03", Name: "lag-truth", Promise: "Lag is exact or unknown after any calls, and so is the sum of Lag and Unacked",
		Needs:  []law.Need{law.NeedVerb[backend.Statser]()},
		Faults: []string{"stats-lie", "maintain-trims-unread"}, Test: lagTruth,
	}, {
		ID: "C62", Name: "stats-oldest", Promise: "Oldest is the storing time of the oldest message that the group has not settled, held or not, or zero if there is none",
		Needs:  []law.Need{law.NeedVerb[backend.Statser]()},
		Faults: []string{"stats-lie"}, Test: statsOldest,
	}, {
		ID: "C86", Name: "clock", Promise: "Now reads the clock that also sets the messages' storing times",
		Needs:  []law.Need{law.NeedVerb[backend.Statser](), law.NeedVerb[backend.Clocker]()},
		Faults: []string{"stats-lie"}, Test: clock,
	}, {
		ID: "C37", Name: "stats-members", Promise: "Stats counts the members of all processes, including those that wait for longer than a lease, until they or their backends are closed",
		Needs:  []law.Need{law.NeedVerb[backend.Statser]()},
		Faults: []string{"closed-works"}, Test: statsMembers,
	}, {
		ID: "C38", Name: "stats-unknown", Promise: "Stats returns ErrGone if the topic or group does not exist",
		Needs:  []law.Need{law.NeedVerb[backend.Statser]()},
		Faults: []string{"errors-hidden"}, Test: statsUnknown,
	},
}

func stats(e *law.Env) backend.Stats {
	e.Helper()
	v := e.Verbs()
	s, err := v.Stats(e.Context(), law.Topic, "g")
	e.Verb(err)
	return s
}

// numbers expects that Stats has these numbers. In place of each number it accepts
// backend.Unknown.
func numbers(e *law.Env, when string, s backend.Stats, lag, inFlight, delayed int64) {
	e.Helper()
	for _, n := range []struct {
		name      string
		got, want int64
	}{
		{"Lag", s.Lag, lag}, {"Unacked", s.Unacked, inFlight + delayed}, {"InFlight", s.InFlight, inFlight}, {"Delayed", s.Delayed, delayed},
	} {
		if n.got != n.want && n.got != backend.Unknown {
			e.Failf("%s: got %s %d, want %d or unknown", when, n.name, n.got, n.want)
		}
	}
	if unsettled := lag + inFlight + delayed; s.Depth < unsettled && s.Depth != backend.Unknown {
		e.Failf("%s: got Depth %d, want at least the %d that are not settled", when, s.Depth, unsettled)
	}
}

// depth expects that Stats has the number of messages that Read returns, or
// backend.Unknown. It expects nothing of a backend without both verbs.
func depth(e *law.Env, when string) {
	e.Helper()
	if !e.Claims(law.NeedVerb[backend.Statser]()) || !e.Claims(law.NeedVerb[backend.Reader]()) {
		return
	}
	ms, err := e.Verbs().Read(e.Context(), law.Topic, "", 1000)
	e.Verb(err)
	if got, want := stats(e).Depth, int64(len(ms)); got != want && got != backend.Unknown {
		e.Failf("%s: got Depth %d, want the %d that the topic keeps, or unknown", when, got, want)
	}
}

// skew is the largest accepted error of a broker's clock.
const skew = time.Second

// oldest expects that the oldest message was published between from and to.
func oldest(e *law.Env, when string, s backend.Stats, from, to time.Time) {
	e.Helper()
	if s.Oldest.Before(from.Add(-skew)) || s.Oldest.After(to.Add(skew)) {
		e.Failf("%s: got Oldest %v, want from %v to %v", when, s.Oldest, from, to)
	}
}

func statsTruth(e *law.Env) {
	src := e.Attach("g")
	numbers(e, "at first", stats(e), 0, 0, 0)
	from := time.Now()
	e.PublishN(5)
	to := time.Now()
	numbers(e, "after 5 publishes", stats(e), 5, 0, 0)
	ds := e.Receive(src, 2)
	numbers(e, "after 2 receipts", stats(e), 3, 2, 0)
	e.Verb(e.Delay(src, 3*e.Lease, ds[0]))
	numbers(e, "after a delay", stats(e), 3, 1, 1)
	e.Ack(src, ds[1])
	numbers(e, "after an acknowledgement", stats(e), 3, 0, 1)
	oldest(e, "with the first message delayed", stats(e), from, to)
	e.Ack(src, e.Receive(src, 3)...)
	numbers(e, "with all but one settled", stats(e), 0, 0, 1)
	e.Ack(src, e.One(src))
	s := stats(e)
	numbers(e, "with all settled", s, 0, 0, 0)
	if !s.Oldest.IsZero() {
		e.Failf("with all settled: got Oldest %v, want none", s.Oldest)
	}
	e.Maintain("g")
	e.PublishN(1)
	depth(e, "with all but the last settled")
}

func statsOfExpired(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(4)
	ds := e.Receive(src, 3)
	e.Verb(e.Delay(src, e.Lease/2, ds[0], ds[1]))
	time.Sleep(e.Lease + e.Lease/4)
	numbers(e, "with a lease and two delays over", stats(e), 1, 1, 2)
	e.Receive(src, 4)
	numbers(e, "with all received", stats(e), 0, 4, 0)
}

func statsOfStart(e *law.Env) {
	e.Attach("keeps")
	ms := e.PublishN(3)
	src := e.AttachAs(backend.Config{Group: "g", Start: backend.StartLatest})
	numbers(e, "of a group that began latest", stats(e), 0, 0, 0)
	e.PublishN(1)
	numbers(e, "after a publish", stats(e), 1, 0, 0)
	e.Ack(src, e.One(src))
	numbers(e, "after an acknowledgement", stats(e), 0, 0, 0)
	if e.Claims(law.NeedVerb[backend.Admin]()) {
		e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartAfter(ms[0].Position)))
		numbers(e, "after a reset to the first message", stats(e), 3, 0, 0)
	}
}

// statsOldest checks Stats.Oldest. It leaves so much time between messages that even a
// broker with a slightly wrong clock must know which message is the oldest.
func statsOldest(e *law.Env) {
	src := e.AttachAs(backend.Config{Group: "g", Lease: 20 * e.Lease})
	if s := stats(e); !s.Oldest.IsZero() {
		e.Failf("of an empty topic: got Oldest %v, want none", s.Oldest)
	}
	var from, to [2]time.Time
	for i := range from {
		from[i] = time.Now()
		e.PublishN(1)
		to[i] = time.Now()
		if i == 0 {
			time.Sleep(2*skew + law.Tick)
		}
	}
	oldest(e, "with both unread", stats(e), from[0], to[0])
	ds := e.Receive(src, 2)
	oldest(e, "with both held", stats(e), from[0], to[0])
	e.Ack(src, ds[1])
	oldest(e, "with the newer settled", stats(e), from[0], to[0])
	newer := time.Now()
	e.PublishN(1)
	e.Ack(src, ds[0])
	oldest(e, "with only the last unread", stats(e), newer, time.Now())
	e.Ack(src, e.One(src))
	if s := stats(e); !s.Oldest.IsZero() {
		e.Failf("with all settled: got Oldest %v, want none", s.Oldest)
	}
}

// lagTruth makes random calls and compares Stats with a model of the groups.
func lagTruth(e *law.Env) {
	v := e.Verbs()
	m := newModel(e, law.Topic)
	for range 150 {
		m.step()
		g := m.groups[m.random.IntN(len(m.groups))]
		s, err := v.Stats(e.Context(), m.topic, g.name)
		e.Verb(err)
		if s.Lag != int64(g.unread) && s.Lag != backend.Unknown {
			e.Failf("group %s: got Lag %d, want %d or unknown (seed %d)", g.name, s.Lag, g.unread, m.seed)
		}
		known := s.Lag != backend.Unknown && s.Unacked != backend.Unknown
		if sum, want := s.Lag+s.Unacked, int64(len(g.unsettled)); known && sum != want {
			e.Failf("group %s: got %+v, of which %d are not settled, want %d (seed %d)", g.name, s, sum, want, m.seed)
		}
	}
}

func statsMembers(e *law.Env) {
	var members []backend.Source
	for range 3 {
		members = append(members, e.Attach("g"))
	}
	count := func(when string, want int) {
		e.Helper()
		if got := stats(e).Members; got != int64(want) && got != backend.Unknown {
			e.Failf("%s: got %d members, want %d or unknown", when, got, want)
		}
	}
	if e.Claims(law.NeedPeer) {
		p, _ := e.AttachPeer(backend.Config{Group: "g"})
		count("with a member in another process", len(members)+1)
		e.Must(p.Close())
		count("after the other process closed its backend", len(members))
	}
	waitInVain(e, members, 3*e.Lease/2)
	count("after they have waited for longer than a lease", len(members))
	for i, src := range members {
		count(fmt.Sprintf("after %d members were closed twice", i), len(members)-i)
		e.Must(src.Close())
		e.Must(src.Close())
	}
}

// waitInVain calls Receive of all members for a while. There is no message.
func waitInVain(e *law.Env, members []backend.Source, long time.Duration) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), long)
	defer cancel()
	errs := make(chan error, len(members))
	for _, src := range members {
		go func() {
			for {
				one, end := context.WithTimeout(ctx, e.Lease/3)
				ds, err := src.Receive(one, 1, 0)
				ended := one.Err() != nil
				end()
				if ctx.Err() != nil || len(ds) > 0 || err != nil && !ended {
					errs <- err
					return
				}
			}
		}()
	}
	for range members {
		if err := <-errs; err != nil && ctx.Err() == nil {
			e.Failf("a Receive without a message: got error %v", err)
		}
	}
}

func statsUnknown(e *law.Env) {
	v := e.Verbs()
	_, err := v.Stats(e.Context(), "unknown", "g")
	e.Is("Stats of an unknown topic", claimed(e, err), backend.ErrGone)
	e.Attach("g")
	_, err = v.Stats(e.Context(), law.Topic, "unknown")
	e.Is("Stats of an unknown group", claimed(e, err), backend.ErrGone)
}

// clock expects a message to be stored at a time between two readings of the clock. Brokers may
// truncate these times to milliseconds.
func clock(e *law.Env) {
	src := e.Attach("g")
	v := e.Verbs()
	now := func() time.Time {
		e.Helper()
		t, err := v.Now(e.Context(), law.Topic)
		e.Verb(err)
		return t
	}
	for range 3 {
		before := now()
		e.Publish(law.Numbered("", 1)...)
		after := now()
		stored := stats(e).Oldest
		if stored.Before(before.Truncate(time.Millisecond)) || stored.After(after.Add(time.Millisecond)) {
			e.Failf("a message was stored at %v, and the clock said %v before and %v after", stored, before, after)
		}
		e.Ack(src, e.One(src))
		time.Sleep(10 * time.Millisecond)
	}
}
