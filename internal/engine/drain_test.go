package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A later Drain call with less time makes the drain end sooner.
func TestDrainIsHastenedByALaterCaller(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{}, func(ctx context.Context, _ *Run) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			return ctx.Err()
		})
		r.publish("1")
		r.pass(0)
		var first sync.WaitGroup
		first.Go(func() { _, _ = s.Drain(r.Context()) })
		r.pass(time.Second)
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		_, _ = s.Drain(ctx)
		first.Wait()
		require.LessOrEqual(r, r.at(), 8*time.Second)
	})
}

// hung is a backend that answers no calls once on is set.
type hung struct {
	backend.Backend
	on atomic.Bool
}

func (b *hung) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return &hungSource{s, b}, err
}

func (b *hung) Limits() backend.Limits {
	return backend.Limits{Batch: 10, Refund: true, OnceWindow: time.Hour}
}

func (b *hung) Publish(ctx context.Context, m []*backend.Message) error {
	if b.on.Load() {
		<-ctx.Done()
		return errors.Join(backend.ErrUnknownOutcome, ctx.Err())
	}
	return b.Backend.Publish(ctx, m)
}

type hungSource struct {
	backend.Source
	b *hung
}

func (s *hungSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if s.b.on.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Source.Ack(ctx, ds)
}

func (s *hungSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	if s.b.on.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Source.(backend.Delayer).Delay(ctx, ds)
}

func (s *hungSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return s.Source.(backend.Extender).Extend(ctx, ds)
}

// A drain ends even if the broker hangs, however many events there are to settle.
func TestDrainFromAHungBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &hung{Backend: inmemory.New(inmemory.Options{})}
		r := &rig{T: t, start: time.Now()}
		r.Engine = New(b, Options{})
		r.sub(Config{Concurrency: 500, DeadLetter: "d"}, func(_ context.Context, h *Run) error {
			time.Sleep(time.Second)
			switch h.Delivery().ID[len(h.Delivery().ID)-1] {
			case '0', '1', '2':
				return errors.New("not yet")
			case '3', '4', '5':
				return Permanent(errors.New("never"))
			}
			return nil
		})
		r.publish(numbered(500)...)
		r.pass(500 * time.Millisecond)
		b.on.Store(true)
		r.pass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		_, _ = r.Shutdown(ctx)
		require.LessOrEqual(t, time.Since(start), 5*time.Second+lastWait+2*lastSettle)
	})
}

// A drain that runs out of time doesn't wait for a worker in a hook, or in Retry.Delay.
func TestDrainWaitsForNoProgramThatHangs(t *testing.T) {
	for _, where := range []string{"hook", "delay"} {
		t.Run(where, func(t *testing.T) {
			var hang func()
			inBubble(t, Options{Observer: observer.Observer{Handled: func(observer.Handled) { hang() }}}, func(r *rig) {
				end := make(chan struct{})
				defer close(end)
				hang = func() { <-end }
				if where == "delay" {
					hang = func() {}
				}
				s := r.sub(Config{Policy: policy(3, func(*Hold, error) time.Duration { <-end; return 0 })}, func(context.Context, *Run) error {
					if where == "delay" {
						return errDown
					}
					return nil
				})
				r.publish("1")
				r.pass(time.Second)
				ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
				defer cancel()
				start := time.Now()
				left, err := s.Drain(ctx)
				require.NoError(r, err)
				require.Equal(r, 5*time.Second+lastWait, time.Since(start))
				require.Equal(r, where == "delay", left.Unsettled == 1)
			})
		})
	}
}
