package console

import (
	"context"
	"sync"
	"time"
)

// A keeper keeps the knowledge of requests about topics, so that the next request reads only new
// events. Knowledge that nobody has asked for is forgotten after a minute.
type keeper[T any] struct {
	mu  sync.Mutex
	all map[string]*kept[T]
}

// A kept is the knowledge about one topic.
type kept[T any] struct {
	value  T
	turn   chan struct{} // has an element while somebody uses the value
	used   time.Time
	forget *time.Timer
}

const (
	keepFor  = time.Minute
	mostKept = 8 // topics
)

func newKeeper[T any]() *keeper[T] { return &keeper[T]{all: map[string]*kept[T]{}} }

// use calls f with the knowledge about a topic, which is zero at first. One caller uses it at a time.
func (k *keeper[T]) use(ctx context.Context, topic string, f func(*T) error) error {
	one := k.of(topic)
	select {
	case one.turn <- struct{}{}:
		defer func() { <-one.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return f(&one.value)
}

func (k *keeper[T]) of(topic string) *kept[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.all[topic]
	if one == nil {
		if len(k.all) >= mostKept {
			k.drop(k.oldest())
		}
		one = &kept[T]{turn: make(chan struct{}, 1)}
		one.forget = time.AfterFunc(keepFor, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.all[topic] == one {
				k.drop(topic)
			}
		})
		k.all[topic] = one
	}
	one.used = time.Now()
	one.forget.Reset(keepFor)
	return one
}

// oldest returns the topic that nobody has asked for the longest.
func (k *keeper[T]) oldest() (topic string) {
	for name, one := range k.all {
		if topic == "" || one.used.Before(k.all[topic].used) {
			topic = name
		}
	}
	return topic
}

func (k *keeper[T]) drop(topic string) {
	k.all[topic].forget.Stop()
	delete(k.all, topic)
}
