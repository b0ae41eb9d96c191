package middleware

import (
	"context"
	"sync"
	"time"
)

// DedupeMemoryOptions are the settings of a [DedupeMemory]. A zero field means its
// default.
type DedupeMemoryOptions struct {
	// Max is the most events that are remembered. If there are more, the event that was
	// marked first is forgotten. Default 100,000: about 20 MB with keys of 60 bytes.
	Max int

	// Age is how long an event is remembered. Default 1 hour.
	Age time.Duration
}

// A DedupeMemory is a [DedupeStore] in the memory of one process. It is empty after a
// restart, and other members do not see it.
type DedupeMemory struct {
	age time.Duration

	mu     sync.Mutex
	marked *recent[time.Time]
}

var _ DedupeStore = (*DedupeMemory)(nil)

// NewDedupeMemory returns an empty store. It panics if a field of o is negative.
func NewDedupeMemory(o DedupeMemoryOptions) *DedupeMemory {
	if o.Max < 0 || o.Age < 0 {
		panic("eventbus: NewDedupeMemory: Max or Age is negative")
	}
	if o.Max == 0 {
		o.Max = 100_000
	}
	if o.Age == 0 {
		o.Age = time.Hour
	}
	return &DedupeMemory{age: o.Age, marked: newRecent[time.Time](o.Max)}
}

// Handled reports whether key was marked less than Age ago and is not forgotten. The error
// is always nil.
func (m *DedupeMemory) Handled(_ context.Context, key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.marked.get(key)
	return ok && time.Since(at) < m.age, nil
}

// Mark remembers key. The error is always nil.
func (m *DedupeMemory) Mark(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marked.put(key, time.Now())
	return nil
}
