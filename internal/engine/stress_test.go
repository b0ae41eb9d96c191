package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/publish"
	"github.com/seed41896749/eventbus/limiter"
)

// Members join, pause and drain. Handlers fail, wait and settle in manual mode, and calls
// fail. In the end every event is settled, and every place of the limiter is free again.
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
	_ = x.Publish(x.Context(), msgs) // messages whose publish failed may be stored or not
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

// checkSettled checks that the backend has no event that waits, is held, or is delayed.
func (x *stress) checkSettled() {
	st, _ := backend.As[backend.Statser](x.wire)
	stats, err := st.Stats(x.Context(), "t", "g")
	require.NoError(x, err)
	require.Zero(x, stats.Lag+stats.InFlight+stats.Delayed, "unsettled: %+v", stats)
}
