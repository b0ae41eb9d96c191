package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// needSchedule lists the verbs that scheduled events need.
var needSchedule = []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()}

// scheduleLaws are about events that are published at a later time.
var scheduleLaws = []law.Law{
	{
		ID: "B.H01", Name: "schedule-on-time", Promise: "a scheduled event is delivered once, not before it is due and soon after, with exactly the fields that it was given",
		Needs: needSchedule, Faults: []string{"bus-rounds-times", "bus-schedules-nothing"}, Again: true,
		Test: buslaw.On(scheduleOnTime),
	}, {
		ID: "B.H02", Name: "schedule-order", Promise: "scheduled events of a key are delivered in the order in which they are due, whatever the order of the calls",
		Needs: needSchedule, Faults: []string{"bus-rounds-times"}, Again: true,
		Test: buslaw.On(scheduleOrder),
	}, {
		ID: "B.H03", Name: "schedule-again", Promise: "a scheduled event replaces an earlier scheduled event with the same ID, but never a published one",
		Needs: needSchedule, Faults: []string{"bus-adds-to-scheduled"}, Again: true,
		Test: buslaw.On(scheduleAgain),
	}, {
		ID: "B.H04", Name: "schedule-now", Promise: "a zero or past time means now",
		Needs: needSchedule, Faults: []string{"bus-rounds-times"}, Again: true,
		Test: buslaw.On(scheduleNow),
	}, {
		ID: "B.H05", Name: "schedule-ttl", Promise: "the TTL of a scheduled event counts from the time at which it is published",
		Needs: needSchedule, Faults: []string{"bus-adds-to-scheduled"}, Again: true,
		Test: buslaw.On(scheduleTTL),
	}, {
		ID: "B.H06", Name: "schedule-cancel", Promise: "a cancelled event is never delivered, and CancelScheduled reports which events it cancelled",
		Needs: needSchedule, Faults: []string{"bus-cancels-in-words"}, Again: true,
		Test: buslaw.On(scheduleCancel),
	}, {
		ID: "B.H07", Name: "schedule-cancel-race", Promise: "if an event is cancelled just as it is due, either CancelScheduled returns true or the event is delivered",
		Needs: needSchedule, Faults: []string{"bus-cancels-in-words"}, Again: true,
		Test: buslaw.On(scheduleCancelRace),
	}, {
		ID: "B.H08", Name: "schedule-list", Promise: "Scheduled lists the upcoming events in the order in which they are due",
		Needs: needSchedule, Faults: []string{"bus-cancels-in-words"}, Again: true,
		Test: buslaw.On(scheduleList),
	}, {
		ID: "B.H09", Name: "schedule-survives", Promise: "a scheduled event outlives the process that scheduled it: another process publishes it, if late, in the order of due times",
		Needs: append([]law.Need{law.NeedPeer}, needSchedule...), Faults: []string{"bus-schedules-nothing"}, Again: true,
		Test: buslaw.On(scheduleSurvives),
	}, {
		ID: "B.H10", Name: "schedule-shared", Promise: "with two processes, each scheduled event is delivered once, even if one of them ends",
		Needs: append([]law.Need{law.NeedPeer}, needSchedule...), Faults: []string{"bus-schedules-nothing"}, Again: true,
		Test: buslaw.On(scheduleShared),
	}, {
		ID: "B.H11", Name: "schedule-outage", Promise: "events that fall due while the broker is down are delivered once it is back up",
		Needs: append([]law.Need{law.NeedDown}, needSchedule...), Faults: []string{"bus-schedules-nothing"}, Again: true,
		Test: buslaw.On(scheduleOutage),
	}, {
		ID: "B.H12", Name: "schedule-many", Promise: "hundreds of events that are due at the same moment are each delivered once, and those of a key in the order of the calls",
		Needs: needSchedule, Faults: []string{"bus-loses-one-in-ten"}, Again: true,
		Test: buslaw.On(scheduleMany),
	}, {
		ID: "B.H13", Name: "schedule-cut", Promise: "events that fall due while connections break are delivered, and each is stored once",
		Needs: append([]law.Need{law.NeedCut, law.NeedOnce}, needSchedule...), Faults: []string{"bus-loses-one-in-ten"}, Again: true,
		Test: buslaw.On(scheduleCut),
	}, {
		ID: "B.H14", Name: "schedule-crash", Promise: "a scheduled event survives a broker crash",
		Needs: append([]law.Need{law.NeedKill}, needSchedule...), Faults: []string{"bus-loses-one-in-ten"}, Again: true,
		Test: buslaw.On(scheduleCrash),
	}, {
		ID: "B.H15", Name: "schedule-cancel-elsewhere", Promise: "a process can list and cancel an event that another process has scheduled",
		Needs: append([]law.Need{law.NeedPeer}, needSchedule...), Faults: []string{"bus-cancels-in-words"}, Again: true,
		Test: buslaw.On(scheduleCancelElsewhere),
	}, {
		ID: "B.H16", Name: "schedule-refused", Promise: "PublishAt refuses whatever Publish refuses, at the time of the call, naming the field and storing nothing",
		Needs: needSchedule, Engine: true, Faults: []string{"bus-corrects-events"}, Again: true,
		Test: buslaw.On(scheduleRefused),
	}, {
		ID: "B.H17", Name: "schedule-middleware", Promise: "a scheduled event passes through PublishMiddleware once, when it is scheduled, and is delivered as the middleware changed it",
		Needs: needSchedule, Engine: true, Faults: []string{"bus-ignores-options"}, Again: true,
		Test: buslaw.On(scheduleMiddleware),
	}, {
		ID: "B.P25", Name: "publish-all", Promise: "PublishAll reports a separate result for each event of several topics, in their order, and a refused event fails alone",
		Faults: []string{"bus-blurs-results"}, Again: true,
		Test: buslaw.On(publishAll),
	}, {
		ID: "B.P26", Name: "max-payload", Promise: "a payload larger than Options.MaxPayload is refused, and one of exactly that size is stored",
		Engine: true, Faults: []string{"bus-ignores-options"}, Again: true,
		Test: buslaw.On(maxPayload),
	}, {
		ID: "B.P24", Name: "event-once", Promise: "of several events with the same Once, a topic stores only the first, whatever their IDs",
		Needs: []law.Need{law.NeedOnce}, Faults: []string{"bus-drops-fields"}, Again: true,
		Test: buslaw.On(eventOnce),
	},
}

// at schedules an event with this ID.
func at(e *buslaw.Env, b law.Bus, due time.Time, ev *eventbus.Event) {
	e.Helper()
	e.Persist("PublishAt", func() error { return b.PublishAt(e.Context(), law.Topic, due, ev) })
}

// ids returns the IDs of the events that the handlers named name have handled, in their order.
func ids(e *buslaw.Env, name string) (ids []string) {
	for _, h := range e.Recorder.All(name) {
		ids = append(ids, h.Delivery.ID)
	}
	return ids
}

func scheduleOnTime(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{Concurrency: 4}, buslaw.Succeed)
	const n = 40
	began := time.Now()
	due := map[string]time.Time{}
	for i := range n {
		ev := &eventbus.Event{
			ID: fmt.Sprint(i), Key: fmt.Sprint(i % 3), Type: "t", Subject: "s", Payload: fmt.Append(nil, i), Headers: eventbus.Headers{{Name: "h", Value: "v"}},
		}
		due[ev.ID] = began.Add(e.Lease + e.Lease*time.Duration(i*7%n)/n)
		at(e, e.Bus, due[ev.ID], ev)
	}
	e.AwaitDone(n, "g")
	e.Quiet(e.Soon())
	for _, h := range e.Recorder.All("g") {
		d := h.Delivery
		if early := due[d.ID].Sub(h.Began); early > 0 {
			e.Failf("event %s came %v before it was due", d.ID, early)
		}
		if late := h.Began.Sub(due[d.ID]); late > e.Lease+e.Soon() {
			e.Failf("event %s came %v after it was due", d.ID, late)
		}
		if h.Payload != d.ID || d.Type != "t" || d.Subject != "s" || len(d.Headers) != 1 || d.Attempt != 1 || d.Redelivered {
			e.Failf("event %s came as %+v", d.ID, d)
		}
	}
}

func scheduleOrder(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	began := time.Now().Add(e.Lease + e.Soon()) // the calls must have ended
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("%02d", i))
	}
	for _, i := range []int{19, 3, 17, 1, 0, 18, 5, 4, 7, 2, 6, 16, 9, 8, 11, 10, 15, 13, 14, 12} {
		at(e, e.Bus, began.Add(time.Duration(i)*20*time.Millisecond), &eventbus.Event{ID: want[i], Key: "k"})
	}
	e.AwaitDone(len(want), "g")
	if got := ids(e, "g"); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func scheduleAgain(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	for i, in := range []time.Duration{time.Hour, 2 * e.Lease, e.Lease} {
		at(e, e.Bus, time.Now().Add(in), &eventbus.Event{ID: "id", Payload: fmt.Append(nil, i)})
	}
	e.AwaitDone(1, "g")
	e.Quiet(e.Lease + e.Soon())
	if h := e.Recorder.All("g")[0]; h.Payload != "2" {
		e.Failf("got payload %q, want the last one", h.Payload)
	}
	at(e, e.Bus, time.Now().Add(e.Lease/4), &eventbus.Event{ID: "id"})
	e.AwaitDone(2, "g")
}

func scheduleNow(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	start := time.Now()
	at(e, e.Bus, time.Time{}, &eventbus.Event{ID: "zero", Key: "k"})
	at(e, e.Bus, time.Now().Add(-time.Hour), &eventbus.Event{ID: "past", Key: "k"})
	e.Must(e.Bus.PublishIn(e.Context(), law.Topic, 0, &eventbus.Event{ID: "in", Key: "k"}))
	e.AwaitDone(3, "g")
	e.By(start, 0, "the events came")
	if got, want := ids(e, "g"), []string{"zero", "past", "in"}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func scheduleTTL(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	ttl := e.Soon() + e.Lease
	at(e, e.Bus, time.Now().Add(ttl+e.Lease), &eventbus.Event{ID: "id", TTL: ttl})
	e.AwaitDone(1, "g")
}

func scheduleList(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	soon, later := time.Now().Add(e.Lease).Truncate(time.Millisecond), time.Now().AddDate(20, 0, 0).Truncate(time.Millisecond)
	at(e, e.Bus, later, &eventbus.Event{ID: "later", Payload: []byte("p")})
	at(e, e.Bus, soon, &eventbus.Event{ID: "soon", Key: "k"})
	list := func() (list []string) {
		e.Helper()
		for s, err := range e.Bus.Scheduled(e.Context(), law.Topic) {
			e.Must(err)
			list = append(list, fmt.Sprintf("%s %s %q %v", s.ID, s.Key, s.Payload, s.At.UnixMilli()))
		}
		return list
	}
	of := func(id, key, payload string, due time.Time) string {
		return fmt.Sprintf("%s %s %q %v", id, key, payload, due.UnixMilli())
	}
	if got, want := list(), []string{of("soon", "k", "", soon), of("later", "", "p", later)}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
	e.AwaitDone(1, "g")
	if got, want := list(), []string{of("later", "", "p", later)}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func scheduleMany(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	const n = 600
	due := time.Now().Add(e.Lease + e.Soon())
	var want []string
	for i := 0; i < n; i += 20 {
		var some []*eventbus.Event
		for k := range 20 {
			want = append(want, fmt.Sprintf("%03d", i+k))
			some = append(some, &eventbus.Event{ID: want[i+k], Key: "k"})
		}
		e.Persist("PublishAt", func() error { return e.Bus.PublishAt(e.Context(), law.Topic, due, some...) })
	}
	e.AwaitDone(n, "g")
	if got := ids(e, "g"); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
	e.Quiet(e.Soon())
}

func scheduleRefused(e *buslaw.Env) {
	e.Start()
	due := time.Now().Add(time.Hour)
	large := &eventbus.Event{ID: "large", Payload: make([]byte, eventbus.MaxPayload+1)}
	err := e.Bus.PublishAt(e.Context(), law.Topic, due, &eventbus.Event{ID: "fits"}, large)
	e.Is("PublishAt of a large payload", err, eventbus.ErrTooLarge)
	if f, ok := errors.AsType[*eventbus.FieldError](err); !ok || f.Field != "events[1].Payload" {
		e.Failf("got error %v, want a FieldError of events[1].Payload", err)
	}
	err = e.Bus.PublishAt(e.Context(), "a topic", due, &eventbus.Event{})
	if f, ok := errors.AsType[*eventbus.FieldError](err); !ok || f.Field != "topic" {
		e.Failf("got error %v, want a FieldError of topic", err)
	}
	for s, err := range e.Bus.Scheduled(e.Context(), law.Topic) {
		e.Must(err)
		e.Failf("event %s is scheduled, want none", s.ID)
	}
}

func scheduleSurvives(e *buslaw.Env) {
	p := e.Peer()
	e.Start()
	began := time.Now()
	var want []string
	for _, i := range []int{2, 0, 1} {
		at(e, e.Bus, began.Add(e.Lease/4+time.Duration(i)*time.Millisecond), &eventbus.Event{ID: fmt.Sprint(i), Key: "k"})
		want = append(want, fmt.Sprint(len(want)))
	}
	e.End()
	other := e.OtherBus(p, eventbus.Options{})
	time.Sleep(e.Lease / 2)
	e.MemberOn(other, "other", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.AwaitDone(len(want), "other")
	if got := ids(e, "other"); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func scheduleShared(e *buslaw.Env) {
	p := e.Peer()
	e.Start()
	other := e.OtherBus(p, eventbus.Options{})
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.MemberOn(other, "other", eventbus.SubscribeOptions{}, buslaw.Succeed)
	const n = 60
	began := time.Now()
	for i := range n {
		b := e.Bus
		if i%2 > 0 {
			b = other
		}
		at(e, b, began.Add(e.Lease*time.Duration(i)/n+e.Lease/4), &eventbus.Event{ID: fmt.Sprint(i)})
	}
	time.Sleep(e.Lease / 2)
	e.End()
	e.AwaitDone(n, "g", "other")
	e.Quiet(e.Soon())
	all := append(ids(e, "g"), ids(e, "other")...)
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != n || len(all) != n {
		e.Failf("%d events came %d times, want %d once", len(once), len(all), n)
	}
}

func scheduleOutage(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	const n = 20
	began := time.Now().Add(e.Lease / 2)
	for i := range n {
		at(e, e.Bus, began.Add(e.Lease*time.Duration(i)/n), &eventbus.Event{ID: fmt.Sprint(i)})
	}
	time.Sleep(e.Lease)
	up := e.Down(e.Backend)
	time.Sleep(e.Lease)
	up()
	e.Await("each event has come", func(r *buslaw.Recorder) bool {
		for i := range n {
			if !r.Handled["g "+fmt.Sprint(i)] {
				return false
			}
		}
		return true
	})
}

func scheduleCut(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	const n = 60
	began := time.Now().Add(e.Lease / 2)
	for i := range n {
		at(e, e.Bus, began.Add(e.Lease*time.Duration(i)/n), &eventbus.Event{ID: fmt.Sprint(i)})
	}
	for range 4 {
		time.Sleep(e.Lease / 3)
		e.Cut(e.Backend)
	}
	allOnce(e, n)
}

func scheduleCrash(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	const n = 20
	due := time.Now().Add(2 * e.Lease)
	for i := range n {
		at(e, e.Bus, due, &eventbus.Event{ID: fmt.Sprint(i)})
	}
	e.Kill()
	allOnce(e, n)
}

// allOnce expects that each of n events has come, and that the topic has stored each one time:
// an event that is handled twice is a redelivered one.
func allOnce(e *buslaw.Env, n int) {
	e.Helper()
	e.Await("each event has come", func(r *buslaw.Recorder) bool {
		for i := range n {
			if !r.Handled["g "+fmt.Sprint(i)] {
				return false
			}
		}
		return true
	})
	positions := map[string]string{}
	for _, h := range e.Recorder.All("g") {
		d := h.Delivery
		if first, ok := positions[d.ID]; ok && first != d.Position && e.Limits.OnceWindow > 0 {
			e.Failf("event %s is stored twice, at %s and %s", d.ID, first, d.Position)
		}
		positions[d.ID] = d.Position
	}
}

func scheduleMiddleware(e *buslaw.Env) {
	var calls atomic.Int64
	marks := func(next eventbus.Publisher) eventbus.Publisher {
		return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
			for _, ev := range events {
				ev.Headers = append(ev.Headers, eventbus.Header{Name: "call", Value: fmt.Sprint(calls.Add(1))})
			}
			return next.Publish(ctx, topic, events...)
		})
	}
	e.Open(eventbus.Options{PublishMiddleware: []eventbus.PublishMiddleware{marks}}, nil)
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	at(e, e.Bus, time.Now().Add(e.Lease/2), &eventbus.Event{ID: "id"})
	e.AwaitDone(1, "g")
	if got := e.Recorder.All("g")[0].Delivery.Headers.Get("call"); got != "1" || calls.Load() != 1 {
		e.Failf("the event has the header of call %q, after %d calls of the middleware, want the first of one", got, calls.Load())
	}
}

func scheduleCancel(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	at(e, e.Bus, time.Now().Add(time.Millisecond), &eventbus.Event{ID: "published"})
	e.AwaitDone(1, "g")
	due := time.Now().Add(e.Lease + e.Soon())
	for _, id := range []string{"kept", "cancelled", "too"} {
		at(e, e.Bus, due, &eventbus.Event{ID: id})
	}
	got, err := e.Bus.CancelScheduled(e.Context(), law.Topic, "cancelled", "unknown", "published", "too")
	e.Must(err)
	if want := []bool{true, false, false, true}; !slices.Equal(got, want) {
		e.Failf("CancelScheduled: got %v, want %v", got, want)
	}
	e.AwaitDone(2, "g")
	e.Quiet(e.Soon())
	if got, want := ids(e, "g"), []string{"published", "kept"}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func scheduleCancelRace(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{Concurrency: 4}, buslaw.Succeed)
	const n = 100
	began := time.Now().Add(e.Lease / 2)
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(i))
		at(e, e.Bus, began.Add(e.Lease*time.Duration(i)/n), &eventbus.Event{ID: all[i]})
	}
	cancelled := map[string]bool{}
	for i := range n {
		time.Sleep(time.Until(began.Add(e.Lease * time.Duration(i) / n)))
		got, err := e.Bus.CancelScheduled(e.Context(), law.Topic, all[i], all[(i+50)%n])
		e.Must(err)
		for k, id := range []string{all[i], all[(i+50)%n]} {
			cancelled[id] = cancelled[id] || got[k]
		}
	}
	left := 0
	for _, id := range all {
		if !cancelled[id] {
			left++
		}
	}
	e.AwaitDone(left, "g")
	e.Quiet(e.Soon())
	for _, id := range ids(e, "g") {
		if cancelled[id] {
			e.Failf("event %s came, of which CancelScheduled said that it never comes", id)
		}
	}
}

func scheduleCancelElsewhere(e *buslaw.Env) {
	p := e.Peer()
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	other := e.OtherBus(p, eventbus.Options{})
	due := time.Now().Add(e.Lease + e.Soon())
	for _, id := range []string{"kept", "cancelled"} {
		at(e, e.Bus, due, &eventbus.Event{ID: id})
	}
	listed := 0
	for _, err := range other.Scheduled(e.Context(), law.Topic) {
		e.Must(err)
		listed++
	}
	got, err := other.CancelScheduled(e.Context(), law.Topic, "cancelled")
	e.Must(err)
	if listed != 2 || !got[0] {
		e.Failf("another process lists %d events and cancels one: %v, want 2 and true", listed, got[0])
	}
	e.AwaitDone(1, "g")
	e.Quiet(e.Soon())
	if got := ids(e, "g"); got[0] != "kept" {
		e.Failf("got %v, want the event that was not cancelled", got)
	}
}
