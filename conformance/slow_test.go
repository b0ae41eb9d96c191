package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/faultbroker"
	"github.com/seed41896749/eventbus/inmemory"
)

// A slow backend is as slow as real brokers are, and as the contract allows. Every call
// takes a few milliseconds. Receive ends after half a second without messages. It notices a
// cancel late, and may notice due messages late. Leases expire late, so new messages may be
// delivered before redeliveries.
type slow struct{ faultbroker.Store }

// upTo waits for a random time of at most d.
func upTo(d time.Duration) time.Duration { return rand.N(d) + time.Microsecond }

func dawdle() { time.Sleep(time.Millisecond + upTo(4*time.Millisecond)) }

func (s slow) Publish(ctx context.Context, msgs []*backend.Message) error {
	dawdle()
	return s.Store.Publish(ctx, msgs)
}

func (s slow) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	dawdle()
	if c.Lease > 0 {
		c.Lease += upTo(500 * time.Millisecond)
	}
	src, err := s.Store.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &slowSource{src}, nil
}

type slowSource struct{ backend.Source }

func (s *slowSource) Unwrap() backend.Source { return s.Source }

func (s *slowSource) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	if ctx.Err() != nil {
		return s.Source.Receive(ctx, max, maxBytes)
	}
	if rand.IntN(8) == 0 {
		time.Sleep(upTo(400 * time.Millisecond))
	}
	block, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(upTo(400*time.Millisecond), cancel) })()
	ds, err := s.Source.Receive(block, max, maxBytes)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = ctx.Err()
	}
	return ds, err
}

func (s *slowSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	dawdle()
	return s.Source.Ack(ctx, ds)
}

func (s *slowSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	dawdle()
	return s.Source.(backend.Extender).Extend(ctx, ds)
}

func (s *slowSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	dawdle()
	return s.Source.(backend.Delayer).Delay(ctx, ds)
}

// TestSlowBrokerKeepsEveryLaw checks that a slow broker breaks no law.
func TestSlowBrokerKeepsEveryLaw(t *testing.T) { Run(t, slowSuite()) }

func slowSuite() Suite {
	o := inmemory.Options{MaxBytes: 16 << 20, OnceWindow: 8 * time.Second}
	s := harmed(o, good, func(s faultbroker.Store) faultbroker.Store { return slow{s} })
	s.Name, s.Lease = "slow", 2*time.Second
	return s
}

// realClock is the environment variable that enables TestRealClock.
const realClock = "EVENTBUS_REAL_CLOCK"

// TestRealClock runs the suite in parallel on the machine's clock, as with a broker. It
// shows how long the laws take, and whether they pass on a busy machine.
func TestRealClock(t *testing.T) {
	if os.Getenv(realClock) == "" {
		t.Skip("it takes a minute: set " + realClock)
	}
	s := slowSuite()
	s.Around, s.Parallel = nil, true
	Run(t, s)
}
