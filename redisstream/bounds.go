package redisstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	boundAge  = time.Second // after this time a Publish to a topic asks again whether the topic has a bound
	maxBounds = 10_000      // topics that a backend remembers; it then forgets all, and asks anew
)

// bounds remembers which topics have a bound of their own (MaxMessages), because only their
// messages need publish.lua. A backend asks before its first Publish to a topic. Later it
// asks with its messages, in the same round trip, at most once in boundAge.
type bounds struct {
	all    bool // all topics have one, by Options.MaxMessages
	mu     sync.Mutex
	topics map[string]bound
}

type bound struct {
	set   bool
	asked time.Time
}

// A question says whether the server must be asked for the bound of a topic.
type question int

const (
	answered question = iota
	again             // ask with the next messages
	first             // ask before the next messages
)

// question returns the question for a topic. The caller asks it. After again, other callers
// do not ask for boundAge.
func (b *bounds) question(topic string, now time.Time) question {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.topics[topic]
	switch {
	case !ok:
		return first
	case now.Sub(known.asked) < boundAge:
		return answered
	}
	b.topics[topic] = bound{known.set, now} // the map has a copy of the name
	return again
}

// set reports whether a topic has a bound, as far as the backend knows.
func (b *bounds) set(topic string) bool {
	if b.all {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.topics[topic].set
}

// learn remembers whether a topic has a bound. The server was asked at a moment, and a later
// answer stays.
func (b *bounds) learn(topic string, set bool, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.topics[topic]
	if known.asked.After(at) {
		return
	}
	if b.topics == nil || !ok && len(b.topics) >= maxBounds {
		b.topics = map[string]bound{}
	}
	b.topics[strings.Clone(topic)] = bound{set, at} // it may be part of a large string
}

// An ask is a call for the settings of a topic.
type ask struct {
	call
	topic string
	at    time.Time
}

// know asks for the bounds of topics that the backend does not know. Questions that can wait
// become calls of the trip. If a question has no answer, failed has the error for the
// messages of the topic. broken means that the connection broke.
func (t *trip) know(ctx context.Context, server *inspection, msgs []*backend.Message) (broken bool) {
	b, now := server.backend, time.Now()
	if b.bounds.all {
		return false
	}
	var calls []*call
	var asked []*ask
	for i, m := range msgs {
		if i > 0 && m.Topic == msgs[i-1].Topic {
			continue
		}
		q := b.bounds.question(m.Topic, now)
		if q == answered {
			continue
		}
		stream := b.streamKey(m.Topic)
		a := &ask{call{args: []any{"get", settingsKey(stream)}}, m.Topic, now}
		if q == again {
			t.calls, t.asked = append(t.calls, &a.call), append(t.asked, a)
		} else if server.topic(ctx, stream) == nil { // its error is the error of the messages
			calls, asked = append(calls, &a.call), append(asked, a)
		}
	}
	if len(asked) == 0 {
		return false
	}
	server.wire.send(ctx, calls...)
	for _, a := range asked {
		err := a.learn(b)
		if err == nil {
			continue
		}
		broken = broken || !isAnswer(err) || errors.Is(err, backend.ErrUnavailable)
		if errors.Is(err, backend.ErrUnknownOutcome) { // of the question; no message was sent
			err = fmt.Errorf("%w: the settings of the topic are not known: %s", backend.ErrUnavailable, err.Error())
		}
		if t.failed == nil {
			t.failed = map[string]error{}
		}
		t.failed[a.topic] = err
	}
	return broken
}

// learn reads the answer.
func (a *ask) learn(b *Backend) error {
	text := a.bulk()
	if a.err == nil {
		b.bounds.learn(a.topic, readSettings(text).MaxMessages > 0, a.at)
	}
	return a.err
}
