package middleware

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed41896749/eventbus"
)

// ThrottleOptions are the settings of [Throttle]. A zero field means its default.
type ThrottleOptions struct {
	// Burst is how many events of a bucket may run without a wait after a pause. Default 1.
	Burst int

	// Bucket returns the name of the bucket of an event, such as a tenant. If the name is
	// "", the event is not throttled. Default: topic and group.
	Bucket func(*eventbus.Delivery) string

	// MaxBuckets is the most buckets in memory. If there are more, the bucket that was
	// unused for longest is forgotten, and its next event runs without a wait. Default
	// 10,000.
	MaxBuckets int
}

// Throttle bounds the runs of handlers in this process: for each bucket, perSecond runs
// begin per second. Retries are runs too.
//
// An event waits for its turn in one of the Concurrency handlers, so waiting costs no
// attempt and no round trip. Its lease is extended. The wait is part of
// SubscribeOptions.Timeout. If the wait would be longer, Throttle returns immediately with
// [eventbus.Snooze]. If all handlers wait, events of other buckets wait as well. So
// Concurrency should be greater than the number of buckets that are busy at the same time.
// If ctx ends during the wait, the event fails with the cause of ctx.
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
		add:    func() *rate.Limiter { return rate.NewLimiter(rate.Limit(perSecond), o.Burst) },
		byName: newRecent[*rate.Limiter](o.MaxBuckets),
	}
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			if name := o.Bucket(d); name != "" {
				if err := await(ctx, b.get(name)); err != nil {
					return err
				}
			}
			return next(ctx, d)
		}
	}
}

// buckets has the limiters of the buckets that were used last, by the name of the bucket.
type buckets struct {
	add func() *rate.Limiter

	mu     sync.Mutex
	byName *recent[*rate.Limiter]
}

func (b *buckets) get(name string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.byName.get(name)
	if !ok {
		l = b.add()
	}
	b.byName.put(name, l)
	return l
}

// await waits until l allows a run. It returns an error if ctx ends before that.
func await(ctx context.Context, l *rate.Limiter) error {
	turn := l.Reserve()
	delay := turn.Delay()
	if delay == 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && delay >= time.Until(deadline) {
		turn.Cancel()
		return eventbus.Snooze(delay)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		turn.Cancel()
		return context.Cause(ctx)
	}
}
