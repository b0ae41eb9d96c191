package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/publish"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// Brokers freeze, answers get lost, calls fail, leases are lost. Members join, pause and leave;
// handlers fail or are slow. Within a member, while its leases hold, an event runs only after all
// earlier events with its key have succeeded. No two events with the same key run at once, and
// every event succeeds in the end. EVENTBUS_LIVES sets the number of random lives.
func TestKeyOrderInRandomLives(t *testing.T) {
	lives := uint64(20)
	if n, err := strconv.ParseUint(os.Getenv("EVENTBUS_LIVES"), 10, 64); err == nil {
		lives = n
	}
	for seed := range lives {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o := &oracle{members: map[string]int{}, events: map[string]*oracleEvent{}, keys: map[string][]*oracleEvent{}, running: map[string]int{}}
			watch := observer.Observer{LeaseLost: func(e observer.LeaseLost) { o.lost(e.ID) }}
			inBubble(t, Options{Observer: watch}, func(r *rig) { o.at = r.at; (&life{rig: r, oracle: o}).run(seed) })
		})
	}
}

// An oracle knows which events may run.
type oracle struct {
	mu      sync.Mutex
	members map[string]int // by subscription, the number of its source
	events  map[string]*oracleEvent
	keys    map[string][]*oracleEvent // in the order of publishing
	running map[string]int            // by member and key
	history []string
	at      func() time.Duration
	doubts  []doubt
	broken  []string
}

// A doubt is a run of an event before an earlier one with its key has succeeded. That breaks the
// order, with two exceptions: the earlier event has just lost its lease, which the observer learns
// only later, or the broker was just delivering the earlier event to another member, in which case
// the oracle may learn of the two deliveries in either order.
type doubt struct {
	member int
	before *oracleEvent
	since  time.Duration // when it happened
	at     time.Duration
	text   string
}

// judge returns the runs that broke the order.
func (o *oracle) judge() (broken []string) {
	for _, d := range o.doubts {
		lost := slices.ContainsFunc(d.before.lostAt, func(at time.Duration) bool { return d.since <= at && at <= d.at })
		elsewhere := slices.ContainsFunc(d.before.handouts, func(h handout) bool { return h.member != d.member && h.at == d.at })
		if !lost && !elsewhere {
			broken = append(broken, d.text)
		}
	}
	return append(broken, o.broken...)
}

// An oracleEvent is one event. It belongs to the member that received it last, until that member
// loses its lease.
type oracleEvent struct {
	id       string
	owner    int // member; 0 for none
	since    time.Duration
	lostAt   []time.Duration
	leftAt   time.Duration // when the broker delivered it last
	handouts []handout
	done     bool
	runs     int
	number   int // number among the events with its key
}

// A handout is the delivery of an event to a member by the broker.
type handout struct {
	member int
	at     time.Duration
}

func (o *oracle) note(format string, args ...any) {
	o.history = append(o.history, fmt.Sprintf("%v: ", o.at())+fmt.Sprintf(format, args...))
}

func (o *oracle) published(key, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := &oracleEvent{id: id, number: len(o.keys[key])}
	o.events[id], o.keys[key] = e, append(o.keys[key], e)
}

func (o *oracle) handedOut(member int, d *backend.Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.events[d.ID]
	e.owner, e.since = member, o.at()
	if member == 0 {
		e.leftAt = e.since
	} else {
		e.handouts = append(e.handouts, handout{member, e.leftAt})
	}
	o.note("%s to %d, attempt %d", d.ID, member, d.Attempt)
}

func (o *oracle) lost(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.events[id]; e != nil {
		e.owner, e.lostAt = 0, append(e.lostAt, o.at())
		o.note("%s lost", id)
	}
}

// starts checks an event that a member is starting to run.
func (o *oracle) starts(at time.Duration, member int, key, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.events[id]
	e.runs++
	o.note("%s runs in %d", id, member)
	for _, before := range o.keys[key][:e.number] {
		if !before.done && before.owner == member && before.since < at {
			o.doubts = append(o.doubts, doubt{member, before, before.since, at, fmt.Sprintf("after %v: member %d runs %s before %s", at, member, id, before.id)})
		}
	}
	lane := fmt.Sprint(member, key)
	if o.running[lane]++; o.running[lane] > 1 {
		o.broken = append(o.broken, fmt.Sprintf("after %v: member %d runs %s beside another", at, member, id))
	}
}

func (o *oracle) ends(member int, key, id string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running[fmt.Sprint(member, key)]--
	if err == nil {
		o.events[id].done = true
	}
	o.note("%s ends in %d: %v", id, member, err)
}

// A life is a group whose members and broker take random steps.
type life struct {
	*rig
	*oracle            // at is the rig's
	dice    *rand.Rand // of the test
	keys    int
	subs    []*Subscription

	luckMu sync.Mutex
	luck   *rand.Rand // of handlers
	calm   bool
}

func (x *life) run(seed uint64) {
	x.dice, x.luck = rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
	x.wire.noRefund = seed%4 == 3
	x.limits = x.wire.Limits()
	x.wire.handOut = x.handedOut
	x.keys = []int{1, 5, 40}[x.dice.IntN(3)]
	x.join()
	if seed%2 == 1 {
		x.join()
	}
	for range 60 {
		x.step()
		x.pass(time.Duration(x.dice.Int64N(int64(1500 * time.Millisecond))))
	}
	x.wire.mute.Store(0)
	for _, verb := range []string{"ack", "delay", "extend", "receive"} {
		x.wire.fail(verb, nil)
		x.wire.delay(verb, 0)
		x.wire.answerAfter(verb, 0)
	}
	x.luckMu.Lock()
	x.calm = true
	x.luckMu.Unlock()
	for _, s := range x.subs {
		s.Resume()
	}
	x.pass(2 * time.Minute)
	broken := x.judge()
	for _, e := range x.events {
		if !e.done {
			broken = append(broken, fmt.Sprintf("event %s is not done: owner %d, %d runs", e.id, e.owner, e.runs))
		}
	}
	if len(broken) > 0 {
		require.Empty(x, broken, "history:\n%s", strings.Join(x.history, "\n"))
	}
}

// join adds a member.
func (x *life) join() {
	backoff := time.Duration(100+100*x.dice.IntN(20)) * time.Millisecond
	member := int(x.wire.members.Load()) + 1
	c := Config{
		Topic: "t", Group: "g", Lease: 6 * time.Second, Order: ByKey,
		Concurrency: 1 + x.dice.IntN(6), MaxInFlight: []int{6, 20, 200}[x.dice.IntN(3)],
		Policy: policy(0, func(*Hold, error) time.Duration { return backoff }),
	}
	c.MaxRedelivered = (c.Concurrency - 1) / 2
	x.subs = append(x.subs, x.sub(c, func(ctx context.Context, h *Run) error { return x.handle(ctx, member, h) }))
}

// step does something at random.
func (x *life) step() {
	verbs := []string{"ack", "delay", "extend", "receive"}
	s := x.subs[x.dice.IntN(len(x.subs))]
	switch x.dice.IntN(14) {
	case 0, 1:
		x.wire.fail("extend", []error{errDown, nil}[x.dice.IntN(2)]) // leases are lost
	case 2:
		x.wire.mute.Store(int64(x.dice.IntN(3)))
	case 3:
		x.wire.delay(verbs[x.dice.IntN(4)], time.Duration(x.dice.IntN(3))*400*time.Millisecond)
	case 4:
		x.wire.answerAfter(verbs[x.dice.IntN(4)], time.Duration(x.dice.IntN(3))*400*time.Millisecond)
	case 5:
		x.wire.fail(verbs[x.dice.IntN(4)], []error{errDown, backend.ErrUnavailable, nil, nil}[x.dice.IntN(4)])
	case 6:
		x.freeze(time.Duration(x.dice.IntN(8)) * time.Second)
	case 7:
		if x.dice.IntN(3) == 0 {
			s.Pause()
		}
	case 8:
		s.Resume()
	default:
		for range 1 + x.dice.IntN(2*x.keys) {
			key := strconv.Itoa(x.dice.IntN(x.keys))
			id := key + "/" + strconv.Itoa(len(x.oracle.keys[key]))
			x.published(key, id)
			x.publishKeyed(key, id)
		}
	}
}

// freeze keeps calls from reaching the broker for a while.
func (x *life) freeze(d time.Duration) {
	for _, verb := range []string{"ack", "delay", "extend", "receive"} {
		x.wire.delay(verb, d)
	}
	x.pass(d / 2)
	for _, verb := range []string{"ack", "delay", "extend", "receive"} {
		x.wire.delay(verb, 0)
	}
}

// handle succeeds, fails or waits, at random.
func (x *life) handle(ctx context.Context, member int, h *Run) error {
	key, id := h.Delivery().Key, h.Delivery().ID
	x.starts(x.rig.at(), member, key, id)
	x.luckMu.Lock()
	what, d := x.luck.IntN(14), time.Duration(x.luck.IntN(400))*time.Millisecond
	if x.calm {
		what = 13
	}
	x.luckMu.Unlock()
	err := behave(ctx, what, d)
	x.ends(member, key, id, err)
	return err
}

func behave(ctx context.Context, what int, d time.Duration) error {
	switch what {
	case 0:
		return errors.New("no")
	case 1:
		return Snooze(10 * d)
	case 2:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * d):
			return nil
		}
	case 3:
		time.Sleep(20 * d)
		return RetryAfter(errors.New("no"), 5*d)
	case 4:
		return RetryAfter(errors.New("no"), d/4)
	}
	time.Sleep(d / 8)
	return nil
}

// Members join, pause and drain. Handlers fail, wait and settle in manual mode, and calls fail. In
// the end every event is settled, and every slot of the limiter is free again.
func TestNothingIsLostWhateverHappens(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newStress(t, seed).run() })
		})
	}
}

// A stress is a group whose members and broker take random steps.
type stress struct {
	*rig
	dice   *rand.Rand
	places limiter.Limiter
	subs   []*Subscription
	sent   int
}

const stressPlaces = 40

func newStress(t *testing.T, seed uint64) *stress {
	r := &rig{T: t, start: time.Now(), wire: &wire{Backend: inmemory.New(inmemory.Options{})}}
	x := &stress{rig: r, dice: rand.New(rand.NewPCG(seed, 0))}
	r.wire.noDelay = seed%4 == 3
	r.Engine = New(r.wire, Options{Publish: publish.Options{Timeout: 10 * time.Second}})
	x.places = limiter.MaxInFlight(stressPlaces)
	return x
}

func (x *stress) run() {
	x.join()
	for range 60 {
		x.step()
		x.pass(time.Duration(x.dice.Int64N(int64(2 * time.Second))))
	}
	for _, verb := range []string{"ack", "delay", "extend", "receive", "publish"} {
		x.wire.fail(verb, nil)
		x.wire.delay(verb, 0)
	}
	for _, s := range x.subs {
		s.Resume()
	}
	x.join()
	x.pass(10 * time.Minute)
	x.drainAll()
	g, err := x.places.Acquire(x.Context(), stressPlaces)
	require.NoError(x, err)
	require.Equal(x, stressPlaces, g.Messages, "every place came back")
	x.checkSettled()
	_, err = x.Shutdown(x.Context())
	require.NoError(x, err)
}

// step does something at random.
func (x *stress) step() {
	switch x.dice.IntN(12) {
	case 0:
		if len(x.subs) < 4 {
			x.join()
		}
	case 1:
		if len(x.subs) > 1 {
			x.drain(x.dice.IntN(len(x.subs)))
		}
	case 2:
		if len(x.subs) > 0 {
			x.subs[x.dice.IntN(len(x.subs))].Pause()
		}
	case 3:
		for _, s := range x.subs {
			s.Resume()
		}
	case 4, 5:
		verb := []string{"ack", "delay", "extend", "receive", "publish"}[x.dice.IntN(5)]
		x.wire.fail(verb, []error{errDown, backend.ErrUnavailable, nil, nil}[x.dice.IntN(4)])
	case 6:
		verb := []string{"ack", "delay", "extend"}[x.dice.IntN(3)]
		x.wire.delay(verb, time.Duration(x.dice.IntN(3))*200*time.Millisecond)
	default:
		x.send(1 + x.dice.IntN(20))
	}
}

func (x *stress) send(n int) {
	var msgs []*backend.Message
	for range n {
		id := fmt.Sprint(x.sent + len(msgs))
		key := ""
		if k := x.dice.IntN(4); k > 0 {
			key = fmt.Sprint(k)
		}
		msgs = append(msgs, &backend.Message{Topic: "t", ID: id, Key: key, Once: true})
	}
	_ = x.Publish(x.Context(), msgs) // messages whose publish failed may or may not be stored
	x.sent += n
}

func (x *stress) join() {
	c := Config{
		Topic: "t", Group: "g", DeadLetter: "dead", Limiter: x.places, MaxInFlight: stressPlaces,
		Mode: []Mode{OnSuccess, Manual}[x.dice.IntN(2)], Order: []Order{ByKey, Total, Unordered}[x.dice.IntN(3)],
		Concurrency: 1 + x.dice.IntN(4), Lease: 5 * time.Second, Timeout: 3 * time.Second,
		Policy: policy(4, func(h *Hold, _ error) time.Duration { return time.Duration(h.Attempt) * 300 * time.Millisecond }),
	}
	if c.Order == Total {
		c.Concurrency = 1
	}
	c.MaxRedelivered = (c.Concurrency - 1) / 2
	c.Handle = func(ctx context.Context, h *Run) error { return x.handle(ctx, h, c.Mode) }
	x.wire.fail("attach", nil)
	s, err := x.Subscribe(x.Context(), c)
	require.NoError(x, err)
	x.subs = append(x.subs, s)
}

// handle succeeds, fails, panics or waits, at random.
func (x *stress) handle(ctx context.Context, h *Run, m Mode) error {
	switch rand.IntN(20) {
	case 0, 1:
		return errors.New("not yet")
	case 2:
		return Permanent(errors.New("never"))
	case 3:
		return Snooze(time.Second)
	case 4:
		<-ctx.Done()
		return ctx.Err()
	case 5:
		time.Sleep(4 * time.Second)
	case 6:
		panic("a bug")
	default:
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
	}
	if m == Manual {
		return x.settle(ctx, h)
	}
	return nil
}

// settle settles h in manual mode, now or later, perhaps twice, perhaps never.
func (x *stress) settle(ctx context.Context, h *Run) error {
	switch rand.IntN(6) {
	case 0:
		return nil
	case 1:
		_ = h.Nack(ctx, nil)
	case 2:
		go func() {
			time.Sleep(time.Duration(rand.IntN(4000)) * time.Millisecond)
			_ = h.Ack(ctx)
			_ = h.Nack(ctx, nil)
		}()
	case 3:
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = h.Ack(ended)
	default:
		_ = h.Ack(ctx)
	}
	return nil
}

func (x *stress) drain(i int) {
	s := x.subs[i]
	x.subs = append(x.subs[:i], x.subs[i+1:]...)
	patience := time.Duration(x.dice.IntN(3000)) * time.Millisecond
	ctx, cancel := context.WithTimeout(x.Context(), patience)
	defer cancel()
	start := time.Now()
	_, _ = s.Drain(ctx)
	require.LessOrEqual(x, time.Since(start), patience+lastWait+lastSettle+2*time.Second, "calls on the wire take no notice of ctx")
}

func (x *stress) drainAll() {
	for len(x.subs) > 0 {
		s := x.subs[0]
		x.subs = x.subs[1:]
		left, err := s.Drain(x.Context())
		require.NoError(x, err)
		require.Zero(x, left.Handlers+left.Unsettled)
	}
}

// checkSettled checks that no event in the backend is waiting, held or delayed.
func (x *stress) checkSettled() {
	st, _ := backend.As[backend.Statser](x.wire)
	stats, err := st.Stats(x.Context(), "t", "g")
	require.NoError(x, err)
	require.Zero(x, stats.Lag+stats.InFlight+stats.Delayed, "unsettled: %+v", stats)
}
