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
	// Burst is how many events of a bucket may run at once after a pause. Default 1.
	Burst int

	// Bucket names the bucket of an event, such as a tenant. An event of the bucket "" is
	// not throttled. Default: topic and group.
	Bucket func(*eventbus.Delivery) string

	// MaxBuckets bounds the number of buckets in memory. If there are more, the bucket that
	// was unused for longest is forgotten: its next event runs at once. Default 10,000.
	MaxBuckets int
}

// Throttle lets perSecond runs of handlers begin each second and bucket, in this process.
// Retries are runs too.
//
// An event waits for its turn while it occupies one of the Concurrency handlers, so waiting
// costs no attempt and no round trip. Its lease is extended. The wait is part of
// SubscribeOptions.Timeout. If it would be longer, Throttle returns at once with
// [eventbus.Snooze]. If all handlers wait, events of other buckets wait as well, so
// Concurrency should exceed the number of buckets that are busy at once. If ctx ends during
// the wait, the event fails with the cause of ctx.
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

// buckets has the limiters that were used last, by the name of their bucket.
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

// await waits for a turn of l.
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
