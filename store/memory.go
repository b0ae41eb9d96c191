package store

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"
)

// MemoryOptions are the settings of a [Memory]. A zero field means its default.
type MemoryOptions struct {
	// Max is the most values that are kept. If there are more, the value that was set first
	// is forgotten. Default 100,000: about 20 MB with keys of 60 bytes and empty values.
	Max int

	// MaxBytes is the most bytes that keys and values have together. If they have more, the
	// values that were set first are forgotten. Default 64 MiB.
	MaxBytes int
}

// A Memory is a [Store] in the memory of one process. It is empty after a restart, and other
// processes do not see it. A value whose time is over gives its memory back when it is looked
// up, or when it is the oldest one at a later Set.
type Memory struct {
	o MemoryOptions

	mu     sync.Mutex
	byKey  map[string]*list.Element // the element of newest that has the key
	newest list.List                // of kept values; the value that was set last is in front
	bytes  int                      // of kept keys and values
}

var _ Store = (*Memory)(nil)

// A kept is a value of a Memory, with its key.
type kept struct {
	key   string
	value []byte
	until time.Time
}

func (k *kept) size() int { return len(k.key) + len(k.value) }

// NewMemory returns an empty store. It panics if a field of o is negative.
func NewMemory(o MemoryOptions) *Memory {
	if o.Max < 0 || o.MaxBytes < 0 {
		panic("store: NewMemory: Max or MaxBytes is negative")
	}
	o.Max = cmp.Or(o.Max, 100_000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<20)
	return &Memory{o: o, byKey: map[string]*list.Element{}}
}

// Set keeps value under key for ttl. A value that is larger than MaxBytes with its key is
// forgotten at once, and so are all others. The error is nil unless ttl is too short.
func (m *Memory) Set(_ context.Context, key string, value []byte, ttl time.Duration) error {
	if err := CheckTTL(ttl); err != nil {
		return err
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(m.byKey[key])
	k := &kept{key, bytes.Clone(value), now.Add(ttl)}
	m.byKey[key] = m.newest.PushFront(k)
	m.bytes += k.size()
	for el := m.newest.Back(); el != nil; el = m.newest.Back() {
		if len(m.byKey) <= m.o.Max && m.bytes <= m.o.MaxBytes && now.Before(el.Value.(*kept).until) {
			break
		}
		m.forget(el)
	}
	return nil
}

// Get returns a copy of the value under key. The error is always nil.
func (m *Memory) Get(_ context.Context, key string) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	el := m.byKey[key]
	if el == nil {
		return nil, false, nil
	}
	k := el.Value.(*kept)
	if !time.Now().Before(k.until) {
		m.forget(el)
		return nil, false, nil
	}
	return bytes.Clone(k.value), true, nil
}

// forget removes the value of el, unless el is nil. The caller holds mu.
func (m *Memory) forget(el *list.Element) {
	if el == nil {
		return
	}
	k := m.newest.Remove(el).(*kept)
	delete(m.byKey, k.key)
	m.bytes -= k.size()
}
