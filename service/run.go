package service

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/seed41896749/eventbus"
)

const (
	usualDrain = 25 * time.Second // less than the 30 s that Kubernetes waits
	sameSignal = time.Second      // a signal repeated within this time counts as one
	lastStart  = time.Second      // how long the shutdown waits for a Subscribe in progress
)

var errRunning = errors.New("service: Run was called before")

// Run starts the groups and the servers, and waits for the first of these: one of Options.Signals,
// the end of ctx, a group that cannot start or has failed for good, a server that has failed, or a
// shutdown of the bus by someone else. Then it shuts down the servers and after them the bus:
// [eventbus.Bus.Shutdown] drains all groups, ends publishing and closes the backend.
//
// drain limits this shutdown; 0 means 25 s, and a negative value means no limit. When the time is
// over, or on a second signal, Run cancels the handlers, waits at most two more seconds, and
// returns. The same signal within a second counts as one, because timeout(1) sends it twice.
//
// The end of ctx and a signal are not errors. Subscriptions that you made on the bus yourself are
// drained too, but are not part of the outcome. Run can only be called once. The contexts of
// handlers have the values of ctx, but don't end with it.
func (s *Service) Run(ctx context.Context, drain time.Duration) Outcome {
	s.mu.Lock()
	again := s.running
	s.running = true
	s.mu.Unlock()
	if again {
		return Outcome{Errors: 1, Err: errRunning}
	}
	signals := make(chan os.Signal, 4)
	which := s.options.Signals
	if which == nil {
		which = []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	if len(which) > 0 { // Notify without signals would relay all of them
		signal.Notify(signals, which...)
		defer signal.Stop(signals)
	}
	if drain == 0 {
		drain = usualDrain
	}
	return s.run(ctx, drain, signals)
}

func (s *Service) run(ctx context.Context, drain time.Duration, signals <-chan os.Signal) Outcome {
	var helpers sync.WaitGroup
	defer helpers.Wait()
	ended := make(chan struct{})
	defer close(ended)
	asked, ask := context.WithCancel(ctx)
	defer ask()
	end, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	helpers.Go(func() { listen(signals, ask, abort, ended) })

	var serving sync.WaitGroup
	for _, server := range s.options.Servers {
		serving.Go(func() { s.serve(server) })
	}
	if err := s.Start(asked); err != nil && asked.Err() == nil {
		s.fail(parts(err)...)
	} else {
		select {
		case <-asked.Done():
		case <-s.over:
		}
	}

	if drain > 0 {
		var stop context.CancelFunc
		end, stop = context.WithTimeout(end, drain)
		defer stop()
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.endServers(end, &serving)
	s.shutdown(end)
	return s.Outcome()
}

// listen calls ask on the first signal, and abort on the second.
func listen(signals <-chan os.Signal, ask, abort func(), ended <-chan struct{}) {
	var first time.Time
	for {
		select {
		case <-signals:
		case <-ended:
			return
		}
		switch {
		case first.IsZero():
			first = time.Now()
			ask()
		case time.Since(first) >= sameSignal:
			abort()
		}
	}
}

// fail records errors of the service and ends Run.
func (s *Service) fail(errs ...error) {
	s.mu.Lock()
	s.errs = append(s.errs, errs...)
	s.mu.Unlock()
	s.end()
}

// parts returns the errors joined in err.
func parts(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// serve runs a server. If the server ends by itself, it has failed.
func (s *Service) serve(server eventbus.Server) {
	err := server.ListenAndServe()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed: // by endServers
	case err != nil:
		s.fail(err)
	default:
		s.end()
	}
}

// endServers shuts the servers down concurrently, and waits for them to end.
func (s *Service) endServers(ctx context.Context, serving *sync.WaitGroup) {
	var calls sync.WaitGroup
	for _, server := range s.options.Servers {
		calls.Go(func() {
			if err := server.Shutdown(ctx); err != nil && ctx.Err() == nil {
				s.fail(err)
			}
		})
	}
	calls.Wait()
	served := make(chan struct{})
	go func() {
		serving.Wait()
		close(served)
	}()
	select {
	case <-served:
	case <-ctx.Done():
	}
}

// shutdown shuts down the bus and counts all groups.
func (s *Service) shutdown(ctx context.Context) {
	err := s.bus.Shutdown(ctx)
	timedOut := ctx.Err() != nil
	if left, ok := errors.AsType[*eventbus.DrainError](err); ok {
		err = left.Err // the groups count their events
	}
	if err != nil {
		s.fail(err)
	}
	_ = s.each(func(m *member) error {
		if sub := s.begun(m); sub != nil {
			s.count(m, sub.Drain(ctx)) // returns the result of Shutdown's drain
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals.TimedOut = timedOut
}

// begun returns the subscription of m, or nil if it has not started. It waits for a call that is
// starting m, because its handler may have run before the call has returned.
func (s *Service) begun(m *member) *eventbus.Subscription {
	s.mu.Lock()
	opening := m.opening
	s.mu.Unlock()
	if opening != nil {
		select {
		case <-opening:
		case <-time.After(lastStart):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.sub
}
