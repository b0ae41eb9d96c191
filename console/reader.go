package console

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/partition"
)

// A reader reads events for a console in bounded steps, and caches results for a short time.
type reader struct {
	backend     backend.Backend
	redact      groupstats.Redact
	timeout     time.Duration // of one call
	cache       *resultCache
	slots       chan struct{} // one element for each request that is reading events
	recordTails *stateCache[recordTail]
	schedules   *stateCache[scheduleScan]
	owners      *stateCache[partition.Roll]
}

const (
	readAtOnce  = 4               // requests that read events
	readTimeout = 8 * time.Second // for one of them, and before it for its turn
)

func newReader(b backend.Backend, o *Options) *reader {
	return &reader{
		backend: b, redact: o.Redact, timeout: o.Timeout, cache: newResultCache(), slots: make(chan struct{}, readAtOnce),
		recordTails: newStateCache[recordTail](), schedules: newStateCache[scheduleScan](), owners: newStateCache[partition.Roll](),
	}
}

// readShared calls f, which reads events, as soon as a slot is free. All requests with the same key
// share one call of f and, for a moment, its result.
func readShared[T any](ctx context.Context, r *reader, key string, f func(context.Context) (T, error)) (T, error) {
	v, err := r.cache.get(ctx, key, func(ctx context.Context) (any, error) {
		if err := r.acquire(ctx); err != nil {
			return nil, err
		}
		defer func() { <-r.slots }()
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		return f(ctx)
	})
	result, _ := v.(T)
	return result, err
}

// acquire waits until fewer than readAtOnce requests read events.
func (r *reader) acquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("too many requests are reading events: %w", backend.ErrUnavailable)
	}
}

// A resultCache lets requests for the same thing share one read. Its goroutines end with their calls,
// which have a timeout.
type resultCache struct {
	mu  sync.Mutex
	all map[string]*cachedResult
}

// A cachedResult is the outcome of a call, once done is closed.
type cachedResult struct {
	done  chan struct{}
	value any
	err   error
	ended time.Time
}

const (
	cacheTime = 2 * time.Second // how long a result is used again
	maxCached = 64
)

func newResultCache() *resultCache { return &resultCache{all: map[string]*cachedResult{}} }

// get returns the result of f for key. The context of f has no end, because several may wait for it.
func (s *resultCache) get(ctx context.Context, key string, f func(context.Context) (any, error)) (any, error) {
	s.mu.Lock()
	s.prune(time.Now())
	r := s.all[key]
	if r == nil {
		r = &cachedResult{done: make(chan struct{})}
		if len(s.all) < maxCached {
			s.all[key] = r
		}
		go func() {
			value, err := callSafely(context.WithoutCancel(ctx), f)
			s.mu.Lock()
			defer s.mu.Unlock()
			r.value, r.err, r.ended = value, err, time.Now()
			if err != nil && s.all[key] == r {
				delete(s.all, key)
			}
			close(r.done)
		}()
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// callSafely calls f. A panic becomes an error, because it would end the program: no server recovers it here.
func callSafely(ctx context.Context, f func(context.Context) (any, error)) (value any, err error) {
	defer func() {
		if v := recover(); v != nil {
			value, err = nil, fmt.Errorf("the page panicked: %v", v)
		}
	}()
	return f(ctx)
}

// drop drops all results, because a change has made them old.
func (s *resultCache) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.all)
}

// prune drops results that are too old.
func (s *resultCache) prune(now time.Time) {
	for key, r := range s.all {
		if !r.ended.IsZero() && now.Sub(r.ended) > cacheTime {
			delete(s.all, key)
		}
	}
}

// A stateCache keeps what requests have read about topics, so that the next request only reads new
// events. State that no request has used for a minute is dropped.
type stateCache[T any] struct {
	mu  sync.Mutex
	all map[string]*topicState[T]
}

// A topicState is the state of one topic.
type topicState[T any] struct {
	value  T
	slot   chan struct{} // has an element while somebody uses the value
	used   time.Time
	forget *time.Timer
}

const (
	stateTime = time.Minute
	maxStates = 8 // topics
)

func newStateCache[T any]() *stateCache[T] { return &stateCache[T]{all: map[string]*topicState[T]{}} }

// use calls f with the state of a topic, which is zero at first. One caller uses it at a time.
func (k *stateCache[T]) use(ctx context.Context, topic string, f func(*T) error) error {
	one := k.of(topic)
	select {
	case one.slot <- struct{}{}:
		defer func() { <-one.slot }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return f(&one.value)
}

func (k *stateCache[T]) of(topic string) *topicState[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.all[topic]
	if one == nil {
		if len(k.all) >= maxStates {
			k.drop(k.oldest())
		}
		one = &topicState[T]{slot: make(chan struct{}, 1)}
		one.forget = time.AfterFunc(stateTime, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.all[topic] == one {
				k.drop(topic)
			}
		})
		k.all[topic] = one
	}
	one.used = time.Now()
	one.forget.Reset(stateTime)
	return one
}

// oldest returns the topic that nobody has asked for the longest.
func (k *stateCache[T]) oldest() (topic string) {
	for name, one := range k.all {
		if topic == "" || one.used.Before(k.all[topic].used) {
			topic = name
		}
	}
	return topic
}

func (k *stateCache[T]) drop(topic string) {
	k.all[topic].forget.Stop()
	delete(k.all, topic)
}
