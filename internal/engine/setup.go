package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// A setup is work that must be done before the first use of a topic. If it fails, it is repeated at
// the next use.
type setup struct {
	done atomic.Bool
	turn chan struct{} // holds a value while the work is under way
	work func(ctx context.Context) error
}

func newSetup(work func(ctx context.Context) error) *setup {
	return &setup{turn: make(chan struct{}, 1), work: work}
}

// do does the work unless that has already happened. Concurrent calls wait for each other until ctx
// is done. A nil *setup has nothing to do.
func (f *setup) do(ctx context.Context) error {
	if f == nil || f.done.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
	}
	if f.done.Load() {
		return nil
	}
	err := f.work(ctx)
	f.done.Store(err == nil)
	return err
}

// forget makes the next do repeat the work, because the topic may be a new one.
func (f *setup) forget() {
	if f != nil {
		f.done.Store(false)
	}
}

// setups do the work before one Publish. They repeat it after temporary failures, within the time
// of the Publish.
type setups struct {
	ctx     context.Context // of the Publish; bounded by timeout once there was work
	timeout time.Duration   // of the Publish; 0 for none
	cancel  context.CancelFunc
}

func (fs *setups) do(f *setup) error {
	if f == nil || f.done.Load() {
		return nil
	}
	if fs.cancel == nil && fs.timeout > 0 {
		fs.ctx, fs.cancel = context.WithTimeout(fs.ctx, fs.timeout)
	}
	for again := wait.Broker(); ; {
		err := f.do(fs.ctx)
		if err == nil {
			return nil
		}
		if !isTransient(err) || !wait.Sleep(fs.ctx, again.Next()) {
			return &unsentError{err}
		}
	}
}

func (fs *setups) end() {
	if fs.cancel != nil {
		fs.cancel()
	}
}

// An unsentError is the error of messages that were not sent because the work before them failed.
// It matches err, but makes it clear that the messages are certainly not stored.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return "not sent: " + e.err.Error() }

func (e *unsentError) Is(target error) bool {
	class := backend.Class(e.err)
	switch ended := errors.Is(e.err, context.DeadlineExceeded) || errors.Is(e.err, context.Canceled); {
	case class == nil && !ended:
		class = backend.ErrRefused
	case !backend.NotStored(e.err):
		class = backend.ErrUnavailable
	}
	return target == class || target != backend.ErrUnknownOutcome && errors.Is(e.err, target)
}

// As makes errors.As find the errors in err.
func (e *unsentError) As(target any) bool { return errors.As(e.err, target) }
