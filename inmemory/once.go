package inmemory

import "time"

// onceIDs remembers the IDs of messages that were published with Message.Once. It keeps each
// ID for one to two windows, and find ignores an ID older than one window.
type onceIDs struct {
	window   time.Duration
	began    time.Time            // when turn made the map young
	current  map[string]onceEntry // IDs added after began
	previous map[string]onceEntry // IDs added before began
}

type onceEntry struct {
	position string
	made     time.Time
}

// find returns the position of the message that was stored with this ID within the last
// window.
func (o *onceIDs) find(id string, now time.Time) (position string, ok bool) {
	m, ok := o.current[id]
	if !ok {
		m, ok = o.previous[id]
	}
	if !ok || now.Sub(m.made) >= o.window {
		return "", false
	}
	return m.position, true
}

// add remembers an ID with its position. It also calls turn to forget old IDs, because
// Maintain may never be called.
func (o *onceIDs) add(id, position string, now time.Time) {
	o.rotate(now)
	o.current[id] = onceEntry{position, now}
}

// rotate forgets the IDs in old, and moves young to old, if began is one window ago or more.
// It returns the time until it has to be called again.
func (o *onceIDs) rotate(now time.Time) (next time.Duration) {
	if now.Sub(o.began) >= o.window {
		o.began, o.previous, o.current = now, o.current, map[string]onceEntry{}
	}
	return o.window - now.Sub(o.began)
}
