package inmemory

import (
	"context"
	"time"
)

// Maintain implements [backend.Maintainer]: it forgets the IDs whose Once window
// has passed. The Ack that allows it forgets messages.
func (b *Backend) Maintain(_ context.Context, topic, name string) (next time.Duration, err error) {
	err = b.visit("maintain", topic, name, func(g *group) error {
		next = g.topic.once.turn(time.Now())
		return nil
	})
	return next, err
}

// A once remembers which IDs were published with Once, each for one window at least.
type once struct {
	window time.Duration
	began  time.Time       // when young did
	young  map[string]mark // made since then
	old    map[string]mark // made before
}

type mark struct {
	position string
	made     time.Time
}

// find returns where a message with this ID was stored within the window.
func (o *once) find(id string, now time.Time) (position string, ok bool) {
	m, ok := o.young[id]
	if !ok {
		m, ok = o.old[id]
	}
	if !ok || now.Sub(m.made) >= o.window {
		return "", false
	}
	return m.position, true
}

// add remembers an ID. It turns too, so that marks do not pile up even if nobody
// calls Maintain.
func (o *once) add(id, position string, now time.Time) {
	o.turn(now)
	o.young[id] = mark{position, now}
}

// turn forgets the old marks when the young ones are a window old. It returns when to
// call it next.
func (o *once) turn(now time.Time) (next time.Duration) {
	if now.Sub(o.began) >= o.window {
		o.began, o.old, o.young = now, o.young, map[string]mark{}
	}
	return o.window - now.Sub(o.began)
}
