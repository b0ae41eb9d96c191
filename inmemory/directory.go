package inmemory

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A directory has the topics of a backend. A topic is locked while the directory is
// locked. So nobody locks a topic that has ended.
type directory struct {
	closed chan struct{} // closed by close

	mu     sync.RWMutex      // guards all that follows; taken before a topic's lock
	topics map[string]*topic // nil after close
	unused uint64            // a topic made again begins here, so no position is given twice
}

// find returns a topic that exists. The caller has the lock.
func (d *directory) find(name string) (*topic, error) {
	t := d.topics[name]
	switch {
	case d.topics == nil:
		return nil, backend.ErrClosed
	case t == nil:
		return nil, backend.ErrGone
	}
	return t, nil
}

// acquire returns a topic that exists, locked.
func (d *directory) acquire(name string) (*topic, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	t, err := d.find(name)
	if err == nil {
		t.mu.Lock()
	}
	return t, err
}

// ensure returns a topic, locked. It makes the topic if need be.
func (d *directory) ensure(name string, b *Backend) (*topic, error) {
	for {
		t, err := d.acquire(name)
		if !errors.Is(err, backend.ErrGone) {
			return t, err
		}
		d.mu.Lock()
		if _, err := d.find(name); errors.Is(err, backend.ErrGone) {
			d.topics[name] = newTopic(b, name, d.unused)
		}
		d.mu.Unlock()
	}
}

// remove ends a topic.
func (d *directory) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.find(name)
	if err == nil {
		delete(d.topics, name)
		d.unused = max(d.unused, t.end(backend.ErrGone))
	}
	return err
}

// names lists the topics, sorted.
func (d *directory) names() ([]string, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.topics == nil {
		return nil, backend.ErrClosed
	}
	return slices.Sorted(maps.Keys(d.topics)), nil
}

// close ends every topic, once.
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
