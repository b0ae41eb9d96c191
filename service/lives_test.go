package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// Groups come and go at random while the service runs and ends. The outcome has each run once.
func TestLives(t *testing.T) {
	runs := int64(0)
	for seed := range uint64(60) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runs += live(t, rand.New(rand.NewPCG(seed, seed))) })
		})
	}
	require.Greater(t, runs, int64(1000), "the lives are not empty")
}

// A fate counts the runs of handlers as the handlers themselves see them.
type fate struct{ failures, panics, snoozes atomic.Int64 }

func (f *fate) handle(_ context.Context, d *eventbus.Delivery) error {
	time.Sleep(time.Duration(len(d.ID)) * 100 * time.Millisecond)
	switch rand.IntN(4) {
	case 0:
		f.failures.Add(1)
		return errBroken
	case 1:
		f.failures.Add(1)
		f.panics.Add(1)
		panic("boom")
	case 2:
		f.snoozes.Add(1)
		return eventbus.Snooze(time.Second)
	}
	return nil
}

// live returns how many runs were counted.
func live(t *testing.T, r *rand.Rand) int64 {
	bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
	s, err := New(bus, Options{Defaults: eventbus.SubscribeOptions{Concurrency: 3, Retry: eventbus.Retry{Initial: 100 * time.Millisecond, Max: time.Second}}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var f fate
	names := []string{"a", "b", "c"}
	var callers sync.WaitGroup
	for range 4 {
		mine := rand.New(rand.NewPCG(r.Uint64(), 0))
		callers.Go(func() {
			for range 40 {
				time.Sleep(time.Duration(mine.IntN(300)) * time.Millisecond)
				name := names[mine.IntN(len(names))]
				impatient, cancel := context.WithTimeout(t.Context(), time.Duration(mine.IntN(3000))*time.Millisecond)
				var err error
				switch mine.IntN(8) {
				case 0, 1, 2:
					err = s.Register(impatient, name, Group{Topic: "t", Handler: f.handle, AllowDuplicate: true})
				case 3, 4:
					err = s.Stop(t.Context(), name)
				case 5:
					err = s.StopAll(t.Context())
				case 6:
					err = s.Start(impatient)
				default:
					err = bus.Publish(t.Context(), "t", &eventbus.Event{ID: strconv.Itoa(mine.IntN(100_000))})
				}
				cancel()
				var wrong *eventbus.FieldError // a name that is taken, or is not registered
				if err != nil && !errors.As(err, &wrong) && !errors.Is(err, eventbus.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				_ = s.Outcome()
			}
		})
	}
	time.AfterFunc(time.Duration(r.IntN(8000))*time.Millisecond, stop)
	o := s.run(ctx, -1, nil)
	callers.Wait()
	require.Equal(t, o, s.Outcome())
	require.Equal(t, []int64{f.failures.Load(), f.panics.Load(), f.snoozes.Load()}, []int64{o.Failures, o.Panics, o.Snoozed})
	require.NoError(t, o.Err)
	require.Zero(t, o.Left)
	require.Empty(t, s.Names())
	return o.Failures + o.Snoozed
}
