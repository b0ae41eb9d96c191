package middleware

import (
	"container/list"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

// ThrottleOptions are the settings of [Throttle]. A zero field means its default.
type ThrottleOptions struct {
	// Burst is how many runs of a bucket may start at once after a pause. Default 1.
	Burst int

	// Bucket returns the name of an event's bucket, for example its tenant. Events with an empty
	// name are not throttled. By default each topic and group has one bucket.
	Bucket func(*eventbus.Delivery) string

	// MaxBuckets limits the buckets in memory. Beyond it, the least recently used bucket is
	// forgotten, and its next event runs without waiting. Default 10,000.
	MaxBuckets int
}

// Throttle limits how often handlers run in this process. In each bucket, at most perSecond runs
// start per second, and up to ThrottleOptions.Burst at once after a pause. Retries count as runs.
//
// A waiting event occupies one of the SubscribeOptions.Concurrency handlers, and its lease is
// extended, so waiting costs neither an attempt nor a round trip. The wait counts towards
// SubscribeOptions.Timeout. If it would exceed the timeout, Throttle immediately returns
// [eventbus.Snooze]. If all handlers are waiting, events of other buckets wait too, so choose a
// Concurrency greater than the number of buckets that are busy at the same time.
//
// If ctx ends during the wait, the event fails with the cause of ctx. With AckOnReceive a Snooze
// discards the event, because it is already acknowledged.
//
// Throttle panics if perSecond is not positive, or if Burst or MaxBuckets is negative.
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
		byName: newLRU[*bucket](o.MaxBuckets),
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

// buckets holds the most recently used buckets by name.
type buckets struct {
	add func() *bucket

	mu     sync.Mutex
	byName *lru[*bucket]
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

// A bucket lets the events of one name run at the given rate.
type bucket struct {
	mu      sync.Mutex // held from Reserve to Cancel, because a later Reserve would make Cancel return less
	limiter *rate.Limiter
}

// reserve makes a reservation, unless its delay would reach the deadline of ctx. ok reports whether
// it did. delay is the time until the reservation, in either case.
func (b *bucket) reserve(ctx context.Context) (r *rate.Reservation, delay time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r = b.limiter.Reserve()
	delay = r.Delay()
	if deadline, has := ctx.Deadline(); has && delay > 0 && delay >= time.Until(deadline) {
		r.Cancel()
		return nil, delay, false
	}
	return r, delay, true
}

// await waits until b allows a run. If the wait would be too long, or ctx ends first, it returns a
// NotRunError.
func (b *bucket) await(ctx context.Context) error {
	r, delay, ok := b.reserve(ctx)
	switch {
	case !ok:
		return &observer.NotRunError{Err: eventbus.Snooze(delay)}
	case delay == 0:
		return nil
	}
	if !wait.Sleep(ctx, delay) {
		r.Cancel()
		return &observer.NotRunError{Err: context.Cause(ctx)}
	}
	return nil
}

// An lru is a map that keeps the max values that were put last. It is not safe for concurrent use.
type lru[V any] struct {
	max    int
	byKey  map[string]*list.Element // the element of newest that has the key
	newest list.List                // of lruEntry; the front is the value put last
}

type lruEntry[V any] struct {
	key   string
	value V
}

func newLRU[V any](limit int) *lru[V] {
	return &lru[V]{max: limit, byKey: map[string]*list.Element{}}
}

func (r *lru[V]) get(key string) (v V, ok bool) {
	el, ok := r.byKey[key]
	if !ok {
		return v, false
	}
	return el.Value.(lruEntry[V]).value, true
}

// put stores v under key, and evicts the value that was put longest ago if there are more than max.
func (r *lru[V]) put(key string, v V) {
	if el, ok := r.byKey[key]; ok {
		r.newest.Remove(el)
	}
	r.byKey[key] = r.newest.PushFront(lruEntry[V]{key, v})
	if len(r.byKey) > r.max {
		delete(r.byKey, r.newest.Remove(r.newest.Back()).(lruEntry[V]).key)
	}
}
