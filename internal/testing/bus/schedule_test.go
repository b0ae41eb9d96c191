package bus_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// An arrivals holds the events that a handler got, and when.
type arrivals struct {
	mu     sync.Mutex
	events []eventbus.Event
	at     []time.Time
}

func (a *arrivals) handle(_ context.Context, d *eventbus.Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events, a.at = append(a.events, d.Event), append(a.at, time.Now())
	return nil
}

// all returns the events so far, and when they came.
func (a *arrivals) all() (events []eventbus.Event, at []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events), slices.Clone(a.at)
}

func (a *arrivals) ids() (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		ids = append(ids, e.ID)
	}
	return ids
}

func subscribed(t *testing.T, bus *eventbustest.Bus) *arrivals {
	a := &arrivals{}
	_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, a.handle)
	require.NoError(t, err)
	return a
}

// A scheduled event comes when it is due: never earlier, and soon after.
func TestPublishAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		a := subscribed(t, bus)
		began := time.Now()
		due := map[string]time.Duration{"hours": 3 * time.Hour, "second": time.Second, "hour": time.Hour, "ms": time.Millisecond}
		for id, in := range due {
			require.NoError(t, bus.PublishAt(t.Context(), "orders", began.Add(in), &eventbus.Event{ID: id, TTL: time.Minute, Payload: []byte(id)}))
		}
		time.Sleep(4 * time.Hour)
		require.Equal(t, []string{"ms", "second", "hour", "hours"}, a.ids())
		events, came := a.all()
		for i, e := range events {
			late := came[i].Sub(began.Add(due[e.ID]))
			require.GreaterOrEqual(t, late, time.Duration(0), e.ID)
			require.LessOrEqual(t, late, 600*time.Millisecond, e.ID)
			require.Equal(t, e.ID, string(e.Payload))
			require.Empty(t, e.Headers, "the headers of the schedule stay in its log")
		}
		require.WithinDuration(t, began, events[3].Time, time.Second, "Time is the time of the call")
	})
}

// Events that are due when nobody runs come later, in the order of their times.
func TestPublishAtOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		began := time.Now()
		for i, in := range []int{3, 1, 2, 1} {
			require.NoError(t, bus.PublishAt(t.Context(), "orders", began.Add(time.Duration(in)*time.Second), &eventbus.Event{ID: fmt.Sprint(in, "-", i), Key: "k"}))
		}
		time.Sleep(time.Hour)
		a := subscribed(t, bus)
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"1-1", "1-3", "2-2", "3-0"}, a.ids())
	})
}

// Now is past or zero.
func TestPublishAtNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		a := subscribed(t, bus)
		require.NoError(t, bus.PublishAt(t.Context(), "orders", time.Time{}, &eventbus.Event{ID: "zero"}))
		require.NoError(t, bus.PublishAt(t.Context(), "orders", time.Now().Add(-time.Hour), &eventbus.Event{ID: "past"}))
		require.NoError(t, bus.PublishIn(t.Context(), "orders", -1, &eventbus.Event{ID: "negative"}))
		synctest.Wait()
		require.Equal(t, []string{"zero", "past", "negative"}, a.ids())
	})
}

func TestCancelScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		a := subscribed(t, bus)
		for i := range 10 {
			require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Duration(i+1)*time.Minute, &eventbus.Event{ID: fmt.Sprint(i)}))
		}
		time.Sleep(90 * time.Second)
		cancelled, err := bus.CancelScheduled(t.Context(), "orders", "3", "0", "unknown", "3", "5")
		require.NoError(t, err)
		require.Equal(t, []bool{true, false, false, true, true}, cancelled)
		cancelled, err = bus.CancelScheduled(t.Context(), "orders", "3")
		require.NoError(t, err)
		require.Equal(t, []bool{false}, cancelled, "there is no such event anymore")
		var left []string
		for e, err := range bus.Scheduled(t.Context(), "orders") {
			require.NoError(t, err)
			left = append(left, e.ID)
		}
		require.Equal(t, []string{"1", "2", "4", "6", "7", "8", "9"}, left)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"0", "1", "2", "4", "6", "7", "8", "9"}, a.ids())
	})
}

// An event with the ID of a scheduled event replaces it, even if its time is earlier.
func TestScheduledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		a := subscribed(t, bus)
		for i, in := range []time.Duration{time.Hour, time.Minute, 2 * time.Minute} {
			require.NoError(t, bus.PublishIn(t.Context(), "orders", in, &eventbus.Event{ID: "id", Payload: fmt.Append(nil, i)}))
		}
		time.Sleep(2 * time.Hour)
		events, _ := a.all()
		require.Len(t, events, 1)
		require.Equal(t, "2", string(events[0].Payload))
		require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Second, &eventbus.Event{ID: "id"}))
		time.Sleep(time.Minute)
		require.Len(t, a.ids(), 2, "it is another event after the first was published")
	})
}

// TTL counts from the publishing.
func TestScheduledTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		a := subscribed(t, bus)
		require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Hour, &eventbus.Event{ID: "id", TTL: time.Second}))
		time.Sleep(2 * time.Hour)
		require.Equal(t, []string{"id"}, a.ids())
	})
}

func TestRecur(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		a := subscribed(t, bus)
		r := eventbus.Recurring{ID: "tick", Topic: "orders", Every: time.Minute, Event: eventbus.Event{Payload: []byte("p")}}
		for range 3 { // as several processes at their start
			require.NoError(t, bus.Recur(t.Context(), r))
			time.Sleep(10 * time.Second)
		}
		time.Sleep(5 * time.Minute)
		require.Len(t, a.ids(), 5)
		events, came := a.all()
		for i, e := range events {
			require.Equal(t, "tick/"+e.Time.Format(time.RFC3339), e.ID)
			require.WithinDuration(t, e.Time, came[i], 600*time.Millisecond)
			require.Equal(t, "p", string(e.Payload))
			require.Empty(t, e.Headers)
		}
		require.NoError(t, bus.PauseRecurring(t.Context(), "orders", "tick", true))
		time.Sleep(time.Hour)
		require.Len(t, a.ids(), 5)
		require.NoError(t, bus.Recur(t.Context(), r))
		states, err := bus.RecurringEntries(t.Context(), "orders")
		require.NoError(t, err)
		require.Len(t, states, 1)
		require.True(t, states[0].Paused)
		require.Zero(t, states[0].Next)
		require.NoError(t, bus.PauseRecurring(t.Context(), "orders", "tick", false))
		time.Sleep(150 * time.Second)
		require.Len(t, a.ids(), 7)
		ended, err := bus.EndRecurring(t.Context(), "orders", "tick", "other")
		require.NoError(t, err)
		require.Equal(t, []bool{true, false}, ended)
		time.Sleep(time.Hour)
		require.Len(t, a.ids(), 7)
		require.ErrorIs(t, bus.PauseRecurring(t.Context(), "orders", "tick", true), backend.ErrGone)
	})
}

// Missed firings: nobody runs for ten and a half minutes.
func TestMissedFirings(t *testing.T) {
	for missed, want := range map[eventbus.Missed]int{eventbus.FireOnce: 1, eventbus.FireNone: 0, eventbus.FireAll: 4} {
		t.Run(string(missed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := eventbustest.New(t)
				a := subscribed(t, bus)
				r := eventbus.Recurring{ID: "tick", Topic: "orders", Every: time.Minute, Missed: missed}
				if missed == eventbus.FireAll {
					r.MaxMissed = 4
				}
				require.NoError(t, bus.Recur(t.Context(), r))
				time.Sleep(90 * time.Second)
				require.Len(t, a.ids(), 1)
				require.NoError(t, bus.Subscriptions()[0].Drain(t.Context()))
				time.Sleep(10*time.Minute + 10*time.Second) // until 11:40
				b := subscribed(t, bus)
				time.Sleep(10 * time.Second)
				require.Len(t, b.ids(), want)
				time.Sleep(time.Minute)
				require.Len(t, b.ids(), want+1)
			})
		})
	}
}

func TestScheduleRefuses(t *testing.T) {
	bus := eventbustest.New(t)
	for want, r := range map[string]eventbus.Recurring{
		"eventbus: Recurring.ID is empty":                                              {Topic: "orders", Every: time.Minute},
		"eventbus: Recurring has neither Every nor Cron":                               {ID: "a", Topic: "orders"},
		"eventbus: Recurring has both Every and Cron":                                  {ID: "a", Topic: "orders", Every: time.Minute, Cron: "@daily"},
		"eventbus: Recurring has Every 1ms, want at least 1s":                          {ID: "a", Topic: "orders", Every: time.Millisecond},
		"eventbus: Recurring has a Zone without Cron":                                  {ID: "a", Topic: "orders", Every: time.Minute, Zone: "UTC"},
		`eventbus: Recurring.Missed is "some", want "once", "none" or "all"`:           {ID: "a", Topic: "orders", Every: time.Minute, Missed: "some"},
		"eventbus: Recurring.MaxMissed is set, but Missed is not FireAll":              {ID: "a", Topic: "orders", Every: time.Minute, MaxMissed: 1},
		"eventbus: Recurring.Event.Payload has 983041 bytes, more than 983040":         {ID: "a", Topic: "orders", Every: time.Minute, Event: eventbus.Event{Payload: make([]byte, eventbus.MaxPayload+1)}},
		"eventbus: Recurring has a time zone in Cron, want it in Zone":                 {ID: "a", Topic: "orders", Cron: "TZ=UTC @daily"},
		`eventbus: Recurring has the Zone "Nowhere": unknown time zone Nowhere`:        {ID: "a", Topic: "orders", Cron: "@daily", Zone: "Nowhere"},
		"eventbus: Recurring.Event.Once is set, but each event gets a text of its own": {ID: "a", Topic: "orders", Every: time.Minute, Event: eventbus.Event{Once: "o"}},
		"eventbus: topic is empty":                                                     {ID: "a", Every: time.Minute},
	} {
		require.EqualError(t, bus.Recur(t.Context(), r), want)
	}
	require.ErrorContains(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "a", Topic: "orders", Cron: "61 * * * *"}), `eventbus: Recurring has the Cron "61 * * * *": `)
	err := bus.PublishAt(t.Context(), "orders", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), &eventbus.Event{})
	require.EqualError(t, err, "eventbus: at is after the year 9999")
}

// A troubled is a backend in memory whose calls of one verb fail while it has an error.
type troubled struct {
	*inmemory.Backend
	remove, publish atomic.Pointer[error]
	fails           string // the topic of which Publish fails
}

func (b *troubled) Remove(ctx context.Context, topic string, positions []string) error {
	if err := b.remove.Load(); err != nil {
		return *err
	}
	return b.Backend.Remove(ctx, topic, positions)
}

func (b *troubled) Publish(ctx context.Context, ms []*backend.Message) error {
	if err := b.publish.Load(); err != nil && ms[0].Topic == b.fails {
		return *err
	}
	return b.Backend.Publish(ctx, ms)
}

// onTroubled runs a test with a bus on a troubled backend. told gets the failures of schedules.
func onTroubled(t *testing.T, test func(t *testing.T, b *troubled, bus *eventbus.Bus, told *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		b, told := &troubled{Backend: inmemory.New(inmemory.Options{})}, &atomic.Int64{}
		bus, err := eventbus.New(b, eventbus.Options{PublishTimeout: time.Second, Observer: observer.Observer{Failed: func(f observer.Failed) {
			if f.Scope == observer.Schedule {
				told.Add(1)
			}
		}}})
		require.NoError(t, err)
		test(t, b, bus, told)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

func subscribedOn(t *testing.T, bus *eventbus.Bus) *arrivals {
	a := &arrivals{}
	_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, a.handle)
	require.NoError(t, err)
	return a
}

// While published events cannot be removed from the log, for longer than the broker remembers
// their IDs, none is published twice, and the failure is reported.
func TestScheduleThatCannotBeRemoved(t *testing.T) {
	onTroubled(t, func(t *testing.T, b *troubled, bus *eventbus.Bus, told *atomic.Int64) {
		a := subscribedOn(t, bus)
		for i := range 20 {
			require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Duration(i)*time.Second, &eventbus.Event{ID: fmt.Sprint(i)}))
		}
		err := fmt.Errorf("%w: as the test wants", backend.ErrUnavailable)
		time.Sleep(5 * time.Second)
		b.remove.Store(&err)
		time.Sleep(time.Hour)
		b.remove.Store(nil)
		time.Sleep(time.Hour)
		require.Len(t, a.ids(), 20)
		require.Positive(t, told.Load())
		left, err := backend.Read(t.Context(), b, "orders.later", "", 100)
		require.NoError(t, err)
		require.Empty(t, left, "the log is empty in the end")
	})
}

// While the topic takes no events, for an hour, they wait and the failure is reported. Then
// they come at once, in the order of their times.
func TestScheduleOfAFullTopic(t *testing.T) {
	onTroubled(t, func(t *testing.T, b *troubled, bus *eventbus.Bus, told *atomic.Int64) {
		b.fails = "orders"
		a := subscribedOn(t, bus)
		for _, i := range []int{3, 1, 2, 0, 4} {
			require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Duration(i+1)*time.Second, &eventbus.Event{ID: fmt.Sprint(i), Key: "k"}))
		}
		full := fmt.Errorf("%w: as the test wants", backend.ErrFull)
		b.publish.Store(&full)
		time.Sleep(time.Hour)
		require.Empty(t, a.ids())
		require.Positive(t, told.Load())
		b.publish.Store(nil)
		time.Sleep(15 * time.Second)
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, a.ids())
	})
}

// A log that takes no records does not stop the events that are due.
func TestScheduleWithAFullLog(t *testing.T) {
	onTroubled(t, func(t *testing.T, b *troubled, bus *eventbus.Bus, told *atomic.Int64) {
		b.fails = "orders.later"
		a := subscribedOn(t, bus)
		require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "tick", Topic: "orders", Every: time.Hour}))
		require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Minute, &eventbus.Event{ID: "due"}))
		full := fmt.Errorf("%w: as the test wants", backend.ErrFull)
		b.publish.Store(&full)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"due"}, a.ids())
		require.Positive(t, told.Load())
		b.publish.Store(nil)
	})
}
