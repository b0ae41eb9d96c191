package middleware

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// ThrottleOptions are the settings of [Throttle]. A zero field means its default.
type ThrottleOptions struct {
	// Burst is how many runs of a bucket may begin at once after a pause. Default 1.
	Burst int

	// Bucket returns the name of the bucket of an event, such as a tenant. If the name is
	// "", the event is not throttled. Default: one bucket for each topic and group.
	Bucket func(*eventbus.Delivery) string

	// MaxBuckets is the most buckets in memory. If there are more, the bucket that was
	// unused for longest is forgotten, and its next event runs without a wait. Default
	// 10,000.
	MaxBuckets int
}

// Throttle bounds the runs of handlers in this process. In each bucket at most perSecond
// runs begin per second, and up to ThrottleOptions.Burst at once after a pause. Retries are
// runs too.
//
// While an event waits for its turn, it occupies one of the SubscribeOptions.Concurrency
// handlers. So the wait costs no attempt and no round trip. The lease of the event is
// extended. The wait is part of SubscribeOptions.Timeout. If the wait would exceed the
// timeout, Throttle returns immediately with [eventbus.Snooze]. If all handlers wait,
// events of other buckets wait as well. So Concurrency should be greater than the number of
// buckets that are busy at the same time. If ctx ends during the wait, the event fails with
// the cause of ctx. With AckOnReceive a Snooze discards the event, because it is
// acknowledged already.
//
// Throttle panics if perSecond is not positive, or Burst or MaxBuckets is negative.
func Throttle(perSecond float64, o ThrottleOptions) eventbus.Middleware {
	if !(perSecond > 0) || o.Burst < 0 || o.MaxBuckets < 0 {
		panic("eventbus: Throttle: the rate must be positive, Burst and MaxBuckets not negative")
	}
	if o.Burst == 0 {
		o.Burst = 1
	}
	if o.MaxBuckets == 0 {
		o.MaxBuckets = 10_000
	}
	if o.Bucket == nil {
		o.Bucket = func(d *eventbus.Delivery) string { return d.Topic + "/" + d.Group }
	}
	b := &buckets{
		add:    func() *bucket { return &bucket{limiter: rate.NewLimiter(rate.Limit(perSecond), o.Burst)} },
		byName: newRecent[*bucket](o.MaxBuckets),
	}
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			if name := o.Bucket(d); name != "" {
				if err := b.get(name).await(ctx); err != nil {
					return err
				}
			}
			return next(ctx, d)
		}
	}
}

// buckets has the buckets that were used last, by name.
type buckets struct {
	add func() *bucket

	mu     sync.Mutex
	byName *recent[*bucket]
}

func (b *buckets) get(name string) *bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.byName.get(name)
	if !ok {
		found = b.add()
	}
	b.byName.put(name, found)
	return found
}

// A bucket gives turns to the events of one name.
type bucket struct {
	mu      sync.Mutex // held from Reserve to Cancel: a turn is not given back after a later Reserve
	limiter *rate.Limiter
}

// reserve takes a turn, unless the wait for the turn would last until the deadline of ctx or
// longer. delay is the time until the turn. ok reports whether reserve took the turn.
func (b *bucket) reserve(ctx context.Context) (turn *rate.Reservation, delay time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	turn = b.limiter.Reserve()
	delay = turn.Delay()
	if deadline, has := ctx.Deadline(); has && delay > 0 && delay >= time.Until(deadline) {
		turn.Cancel()
		return nil, delay, false
	}
	return turn, delay, true
}

// await waits until b allows a run. If the wait is too long, or ctx ends before, it returns a
// NotRunError.
func (b *bucket) await(ctx context.Context) error {
	turn, delay, ok := b.reserve(ctx)
	switch {
	case !ok:
		return &observer.NotRunError{Err: eventbus.Snooze(delay)}
	case delay == 0:
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		turn.Cancel()
		return &observer.NotRunError{Err: context.Cause(ctx)}
	}
}
