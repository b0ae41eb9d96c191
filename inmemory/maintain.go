package inmemory

import (
	"context"
	"time"
)

// Maintain implements [backend.Maintainer]. It forgets the IDs whose Once window has
// passed. It need not forget messages, because Ack does.
func (b *Backend) Maintain(_ context.Context, topic, name string) (next time.Duration, err error) {
	err = b.visit("maintain", topic, name, func(g *group) error {
		next = g.topic.once.turn(time.Now())
		return nil
	})
	return next, err
}

// A once remembers the IDs published with Once, each for at least one window.
type once struct {
	window time.Duration
	began  time.Time       // when the map young was made
	young  map[string]mark // IDs added since then
	old    map[string]mark // IDs added before
}

type mark struct {
	position string
	made     time.Time
}

// find returns the position of a message with this ID within the window.
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

// add remembers an ID. It calls turn, so that IDs do not pile up without Maintain.
func (o *once) add(id, position string, now time.Time) {
	o.turn(now)
	o.young[id] = mark{position, now}
}

// turn forgets the old IDs when the young ones are a window old. It returns the time until
// the next useful call.
func (o *once) turn(now time.Time) (next time.Duration) {
	if now.Sub(o.began) >= o.window {
		o.began, o.old, o.young = now, o.young, map[string]mark{}
	}
	return o.window - now.Sub(o.began)
}
