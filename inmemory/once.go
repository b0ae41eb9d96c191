package inmemory

import "time"

// A once remembers the IDs of messages that were published with Message.Once. It keeps each
// ID for one to two windows, and find ignores an ID older than one window.
type once struct {
	window time.Duration
	began  time.Time       // when turn made the map young
	young  map[string]mark // IDs added after began
	old    map[string]mark // IDs added before began
}

type mark struct {
	position string
	made     time.Time
}

// find returns the position of the message that was stored with this ID within the last
// window.
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

// add remembers an ID with its position. It also calls turn to forget old IDs, because
// Maintain may never be called.
func (o *once) add(id, position string, now time.Time) {
	o.turn(now)
	o.young[id] = mark{position, now}
}

// turn forgets the IDs in old, and moves young to old, if began is one window ago or more.
// It returns the time until it has to be called again.
func (o *once) turn(now time.Time) (next time.Duration) {
	if now.Sub(o.began) >= o.window {
		o.began, o.old, o.young = now, o.young, map[string]mark{}
	}
	return o.window - now.Sub(o.began)
}
