package inmemory

import (
	"context"
	"time"
)

const forgetAtOnce = 1024 // marks: what one Maintain may hold the topic up for

// Maintain implements [backend.Maintainer]: it forgets the IDs whose Once window
// has passed. The Ack that allows it forgets messages.
func (b *Backend) Maintain(_ context.Context, topic, name string) (next time.Duration, err error) {
	err = b.visit("maintain", topic, name, func(g *group) error {
		next = g.topic.once.forget(forgetAtOnce, time.Now())
		return nil
	})
	return next, err
}

// A once remembers which IDs were published with Once, each for one window.
type once struct {
	window time.Duration
	made   map[string]mark
	oldest []mark // every mark made, in that order, until it is forgotten
}

type mark struct {
	id       string
	position string
	at       time.Time
}

// find returns where a message with this ID was stored within the window.
func (o *once) find(id string, now time.Time) (position string, ok bool) {
	m, ok := o.made[id]
	if !ok || now.Sub(m.at) >= o.window {
		return "", false
	}
	return m.position, true
}

// add remembers an ID. It forgets two for each that it adds, so that marks do not
// pile up even if nobody calls Maintain.
func (o *once) add(m mark) {
	o.forget(2, m.at)
	o.made[m.id] = m
	o.oldest = append(o.oldest, m)
}

// forget drops at most limit expired marks and says when to call it next.
func (o *once) forget(limit int, now time.Time) (next time.Duration) {
	for range limit {
		if len(o.oldest) == 0 {
			return o.window
		}
		m := o.oldest[0]
		if left := o.window - now.Sub(m.at); left > 0 {
			return left
		}
		if o.made[m.id] == m { // and not made anew since
			delete(o.made, m.id)
		}
		o.oldest[0] = mark{}
		o.oldest = o.oldest[1:]
	}
	return time.Millisecond // there may be more
}
