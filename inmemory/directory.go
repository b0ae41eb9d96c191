package inmemory

import (
	"maps"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A directory has the topics of a backend, by name.
type directory struct {
	closed chan struct{} // closed by close

	mu     sync.Mutex        // guards the fields below; taken before a topic's lock
	topics map[string]*topic // nil after close
	unused uint64            // the first offset of a new topic; a deleted topic had only lower ones
}

// acquire locks a topic and returns it. The caller unlocks it. If the topic is missing,
// acquire creates it for b, or returns [backend.ErrGone] if b is nil.
func (d *directory) acquire(name string, b *Backend) (*topic, error) {
	for {
		d.mu.Lock()
		t, closed := d.topics[name], d.topics == nil
		if t == nil && b != nil && !closed {
			t = &topic{backend: b, name: name, groups: map[string]*group{}}
			t.log.first, t.once.window = d.unused, b.options.OnceWindow
			d.topics[name] = t
		}
		d.mu.Unlock()
		switch {
		case closed:
			return nil, backend.ErrClosed
		case t == nil:
			return nil, backend.ErrGone
		}
		if t.mu.Lock(); !t.ended {
			return t, nil
		}
		t.mu.Unlock() // the topic was removed meanwhile: look again
	}
}

// remove deletes a topic. Later calls of its members return [backend.ErrGone].
func (d *directory) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.topics[name]
	switch {
	case d.topics == nil:
		return backend.ErrClosed
	case t == nil:
		return backend.ErrGone
	}
	delete(d.topics, name)
	d.unused = max(d.unused, t.end(backend.ErrGone))
	return nil
}

// names lists the topics, sorted.
func (d *directory) names() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.topics == nil {
		return nil, backend.ErrClosed
	}
	return slices.Sorted(maps.Keys(d.topics)), nil
}

// close forgets every topic. Later calls of their members return [backend.ErrClosed]. A
// second close does nothing.
func (d *directory) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.topics == nil {
		return
	}
	close(d.closed)
	for _, t := range d.topics {
		t.end(backend.ErrClosed)
	}
	d.topics = nil
}
