package inmemory

import (
	"errors"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A directory has the topics of a backend. To find one that exists takes no lock
// that all topics share.
type directory struct {
	mu     sync.Mutex // guards all changes; taken before a topic's, never after it
	closed bool
	used   uint64        // a topic that is made anew begins here: no position is given twice
	topics sync.Map      // *topic by name
	done   chan struct{} // closed by close, before a topic ends
}

// acquire returns a topic that exists, locked.
func (d *directory) acquire(name string) (*topic, error) { return d.find(name, (*topic).lock) }

// find returns a topic that exists, with that lock of its two.
func (d *directory) find(name string, lock func(*topic) error) (*topic, error) {
	found, ok := d.topics.Load(name)
	if !ok {
		return nil, d.open(backend.ErrGone)
	}
	t := found.(*topic)
	if err := lock(t); err != nil { // it ended meanwhile
		return nil, err
	}
	return t, nil
}

// ensure is find, and makes the topic if need be.
func (d *directory) ensure(name string, lock func(*topic) error, make func(name string) *topic) (*topic, error) {
	t, err := d.find(name, lock)
	if !errors.Is(err, backend.ErrGone) {
		return t, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, backend.ErrClosed
	}
	if found, ok := d.topics.Load(name); ok {
		t = found.(*topic)
	} else {
		t = make(name)
		d.topics.Store(name, t)
	}
	return t, lock(t) // which has not ended: that would take d.mu
}

// open returns err, or that the directory is closed.
func (d *directory) open(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return backend.ErrClosed
	}
	return err
}

// names lists the topics, sorted.
func (d *directory) names() []string {
	names := []string{}
	for name := range d.topics.Range {
		names = append(names, name.(string))
	}
	slices.Sort(names)
	return names
}

// remove ends a topic.
func (d *directory) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return backend.ErrClosed
	}
	found, ok := d.topics.LoadAndDelete(name)
	if !ok {
		return backend.ErrGone
	}
	t := found.(*topic)
	t.end(backend.ErrGone)
	d.used = max(d.used, t.log.next.Load())
	return nil
}

// close ends every topic, once.
func (d *directory) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.closed = true
	close(d.done)
	for _, t := range d.topics.Range {
		t.(*topic).end(backend.ErrClosed)
	}
	d.topics.Clear()
}
