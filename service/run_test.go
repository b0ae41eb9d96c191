package service

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A running is a service in Run, in a synctest bubble.
type running struct {
	*testing.T
	bus     *eventbus.Bus
	s       *Service
	signals chan os.Signal
	cancel  context.CancelFunc
	outcome chan Outcome
}

// runs runs a service with groups on the topic "t", and 10 s for the drain.
func runs(t *testing.T, o Options, groups map[string]eventbus.Handler, f func(r *running)) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
		s, err := New(bus, o)
		require.NoError(t, err)
		for name, h := range groups {
			options := eventbus.SubscribeOptions{Concurrency: 8, Timeout: time.Minute, Retry: eventbus.Retry{Initial: time.Hour}}
			require.NoError(t, s.Register(t.Context(), name, Group{Topic: "t", Options: options, Handler: h}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer time.Sleep(2 * time.Hour) // stuck handlers end
		r := &running{t, bus, s, make(chan os.Signal, 4), cancel, make(chan Outcome, 1)}
		go func() { r.outcome <- s.run(ctx, 10*time.Second, r.signals) }()
		synctest.Wait()
		f(r)
		cancel()
	})
}

func (r *running) publish(ids ...string) {
	r.Helper()
	for _, id := range ids {
		require.NoError(r, r.bus.Publish(r.Context(), "t", &eventbus.Event{ID: id}))
	}
	synctest.Wait()
}

// ends returns the outcome, and expects that Run ends after the given time.
func (r *running) ends(after time.Duration) Outcome {
	r.Helper()
	began := time.Now()
	o := <-r.outcome
	require.Equal(r, after, time.Since(began).Round(100*time.Millisecond))
	require.Equal(r, o, r.s.Outcome(), "the account does not change after Run")
	require.ErrorIs(r, r.bus.Publish(r.Context(), "t", &eventbus.Event{}), eventbus.ErrClosed)
	require.ErrorIs(r, r.s.Register(r.Context(), "late", Group{Topic: "t", Handler: succeed}), eventbus.ErrClosed)
	require.ErrorIs(r, r.s.Start(r.Context()), eventbus.ErrClosed)
	require.Empty(r, r.s.Names())
	return o
}

// takes returns a handler that sleeps, and then behaves as the ID says.
func takes(d time.Duration) eventbus.Handler {
	return func(_ context.Context, e *eventbus.Delivery) error {
		time.Sleep(d)
		switch e.ID {
		case "error":
			return errBroken
		case "panic":
			panic("boom")
		case "snooze":
			return eventbus.Snooze(time.Hour)
		case "dead":
			return eventbus.Permanent(errBroken)
		case "drop":
			return eventbus.Drop("not wanted")
		case "stuck":
			time.Sleep(time.Hour)
		}
		return nil
	}
}

// Run ends by a signal or with ctx, waits for handlers, and counts the runs of the drain too.
func TestRunDrains(t *testing.T) {
	for name, end := range map[string]func(*running){
		"signal":          func(r *running) { r.signals <- syscall.SIGTERM },
		"signal of twice": func(r *running) { r.signals <- syscall.SIGTERM; r.signals <- syscall.SIGTERM },
		"ctx":             func(r *running) { r.cancel() },
		"ctx and signal":  func(r *running) { r.cancel(); synctest.Wait(); r.signals <- syscall.SIGTERM },
	} {
		t.Run(name, func(t *testing.T) {
			runs(t, Options{}, map[string]eventbus.Handler{"a": takes(5 * time.Second), "b": takes(time.Second)}, func(r *running) {
				r.publish("ok", "error", "snooze", "dead", "drop")
				end(r)
				o := r.ends(5 * time.Second)
				require.Equal(r, []int64{4, 0, 2, 2, 2}, []int64{o.Failures, o.Panics, o.Snoozed, o.DeadLettered, o.Discarded})
				require.EqualValues(r, 5, o.Groups["a"].Received)
				require.Zero(r, o.Left)
				require.False(r, o.TimedOut)
				require.NoError(r, o.Err)
				require.Equal(r, ExitClean, o.ExitCode())
				require.Equal(r, "failures 4 (panics 0, timeouts 0), snoozed 2, dead-lettered 2, discarded 2, left 0", o.String())
			})
		})
	}
}

// A handler that panics during the drain makes the exit code 2.
func TestRunTellsPanics(t *testing.T) {
	runs(t, Options{}, map[string]eventbus.Handler{"a": takes(time.Second)}, func(r *running) {
		r.publish("panic", "error")
		r.cancel()
		o := r.ends(time.Second)
		require.EqualValues(r, 1, o.Panics)
		require.EqualValues(r, 2, o.Failures)
		require.Equal(r, ExitPanics, o.ExitCode())
	})
}

// The account is true after a drain that took too long: the counts of the handlers that have
// returned, and the events that are left.
func TestRunTimesOut(t *testing.T) {
	runs(t, Options{}, map[string]eventbus.Handler{"a": takes(time.Second), "b": takes(2 * time.Second)}, func(r *running) {
		r.publish("panic", "error", "stuck", "snooze")
		r.cancel()
		o := r.ends(11 * time.Second)
		require.True(r, o.TimedOut)
		require.EqualValues(r, 2, o.Left, "a handler of each group is stuck")
		require.Equal(r, []int64{4, 2, 2}, []int64{o.Failures, o.Panics, o.Snoozed})
		require.Equal(r, ExitTimedOut, o.ExitCode())
		require.Contains(r, o.String(), "the drain timed out")
		time.Sleep(2 * time.Hour)
		require.Equal(r, o, r.s.Outcome(), "a handler that returns late changes nothing")
	})
}

// A second signal cuts the drain off. The same signal within a second does not.
func TestASecondSignalAborts(t *testing.T) {
	runs(t, Options{}, map[string]eventbus.Handler{"a": func(ctx context.Context, _ *eventbus.Delivery) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}, func(r *running) {
		r.publish("1")
		r.signals <- os.Interrupt
		time.Sleep(900 * time.Millisecond)
		r.signals <- os.Interrupt
		time.Sleep(100 * time.Millisecond)
		r.signals <- os.Interrupt
		o := r.ends(0)
		require.True(r, o.TimedOut)
		require.Zero(r, o.Left, "the handler has ended with its context")
		require.Equal(r, ExitTimedOut, o.ExitCode())
	})
	runs(t, Options{}, map[string]eventbus.Handler{"a": takes(time.Hour)}, func(r *running) {
		r.publish("1")
		r.cancel() // a first signal after the end of ctx asks for the shutdown that is already in progress
		time.Sleep(5 * time.Second)
		r.signals <- os.Interrupt
		o := r.ends(6 * time.Second)
		require.EqualValues(r, 1, o.Left)
	})
}

// Run ends if a group has failed for good, and Stop is no such end.
func TestRunEndsWithAGroup(t *testing.T) {
	runs(t, Options{}, map[string]eventbus.Handler{"a": succeed, "b": succeed}, func(r *running) {
		require.NoError(r, r.s.Stop(r.Context(), "a"))
		time.Sleep(time.Hour)
		require.Empty(r, r.outcome)
		require.NoError(r, r.bus.Shutdown(r.Context())) // by another part of the program
		o := r.ends(0)
		require.Zero(r, o.ExitCode())
	})
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		bus := eventbustest.On(t, b, eventbus.Options{})
		s, err := New(bus, Options{})
		require.NoError(t, err)
		require.NoError(t, s.Register(t.Context(), "a", Group{Topic: "t", Handler: succeed}))
		outcome := make(chan Outcome, 1)
		go func() { outcome <- s.run(t.Context(), time.Second, nil) }()
		synctest.Wait()
		require.NoError(t, b.Close())
		o := <-outcome
		require.ErrorIs(t, o.Err, eventbus.ErrClosed)
		require.ErrorContains(t, o.Err, "service: a: ")
		require.Equal(t, ExitErrors, o.ExitCode())
	})
}

// Run ends if a group cannot start. The end of ctx during the start is not an error.
func TestRunThatCannotStart(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus, s *Service) {
		s.bus = &brokenBus{bus, "t"}
		for _, name := range []string{"a", "b"} {
			require.NoError(t, s.Register(t.Context(), name, Group{Topic: "t", Handler: succeed}))
		}
		require.NoError(t, s.Register(t.Context(), "c", Group{Topic: "other", Handler: succeed}))
		o := s.run(t.Context(), time.Second, nil)
		require.ErrorIs(t, o.Err, errBroken)
		require.EqualValues(t, 2, o.Errors)
		require.Contains(t, o.String(), "service: a: broken; service: b: broken")
		require.Equal(t, ExitErrors, o.ExitCode())
	})
	on(t, func(t *testing.T, bus *eventbustest.Bus, s *Service) {
		s.bus = slowBus{bus}
		require.NoError(t, s.Register(t.Context(), "a", Group{Topic: "t", Handler: succeed}))
		signals := make(chan os.Signal, 1)
		time.AfterFunc(time.Minute, func() { signals <- os.Interrupt })
		o := s.run(t.Context(), time.Second, signals)
		require.Zero(t, o.ExitCode(), o)
	})
	on(t, func(t *testing.T, _ *eventbustest.Bus, s *Service) {
		s.options.Signals = []os.Signal{} // a bubble must not touch the signals of the process
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Zero(t, s.Run(ctx, 0).ExitCode())
		require.ErrorIs(t, s.Run(ctx, 0).Err, errRunning)
	})
}

// A slowBus does not answer until ctx ends.
type slowBus struct{ Bus }

func (b slowBus) Subscribe(ctx context.Context, _ string, _ eventbus.SubscribeOptions, _ eventbus.Handler) (*eventbus.Subscription, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A server is a Server of which a test decides when it ends.
type server struct {
	failure  chan error
	shutdown func(ctx context.Context) error
	ended    chan struct{}
}

func newServer(shutdown func(ctx context.Context) error) *server {
	return &server{make(chan error, 1), shutdown, make(chan struct{})}
}

func (s *server) ListenAndServe() error {
	select {
	case err := <-s.failure:
		return err
	case <-s.ended:
		return errors.New("server closed")
	}
}

func (s *server) Shutdown(ctx context.Context) error {
	close(s.ended)
	return s.shutdown(ctx)
}

// The servers end before the bus, and the time for the drain bounds both.
func TestServersEndFirst(t *testing.T) {
	var last error
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		ends := newServer(func(ctx context.Context) error {
			time.Sleep(time.Second)
			last = bus.Publish(ctx, "t", &eventbus.Event{}) // a request in flight
			return nil
		})
		s, err := New(bus, Options{Servers: []eventbus.Server{ends}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		o := s.run(ctx, time.Minute, nil)
		require.NoError(t, last)
		require.NoError(t, o.Err)
		require.ErrorIs(t, bus.Publish(t.Context(), "t", &eventbus.Event{}), eventbus.ErrClosed)
	})
}

func TestServersThatFail(t *testing.T) {
	for name, row := range map[string]struct {
		failure, shutdown error
		wait              time.Duration
		exit              int
	}{
		"it fails":         {failure: errBroken, exit: ExitErrors},
		"its end fails":    {shutdown: errBroken, exit: ExitErrors},
		"its end is stuck": {shutdown: context.DeadlineExceeded, wait: 10 * time.Second, exit: ExitTimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fails := newServer(func(context.Context) error {
					time.Sleep(row.wait)
					return row.shutdown
				})
				s, err := New(eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{}), Options{Servers: []eventbus.Server{fails}})
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if row.failure != nil {
					fails.failure <- row.failure
				} else {
					time.AfterFunc(time.Minute, cancel)
				}
				o := s.run(ctx, 10*time.Second, nil)
				require.Equal(t, row.exit, o.ExitCode(), o)
			})
		})
	}
}

// The greatest exit code that applies is the one of the outcome.
func TestExitCodes(t *testing.T) {
	for _, row := range []struct {
		o    Outcome
		want int
	}{
		{Outcome{}, 0},
		{Outcome{Failures: 3, Timeouts: 3, Snoozed: 3, DeadLettered: 3, Discarded: 3}, 0},
		{Outcome{Errors: 1}, 1},
		{Outcome{Errors: 1, Panics: 1}, 2},
		{Outcome{Errors: 1, Panics: 1, TimedOut: true}, 3},
		{Outcome{Left: 1}, 3},
	} {
		require.Equal(t, row.want, row.o.ExitCode(), row.o)
	}
}
