package engine

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus/backend"
)

// A writer makes the calls to the backend for one flush after another, in memory
// that is used again.
type writer struct {
	publisher *publisher
	messages  []backend.Message // of the flush under way
	pointers  []*backend.Message
	payloads  arena
	errs      []error
	calling   sharedCtx // for the backend
	owns      sharedCtx // the same, of callers that write themselves
}

// flush writes what the calls still want stored.
func (w *writer) flush(batch []*call) {
	w.messages, w.pointers = w.messages[:0], w.pointers[:0]
	for _, c := range batch {
		w.gather(c)
	}
	for i := range w.messages {
		w.pointers = append(w.pointers, &w.messages[i])
	}
	written, errs := w.pointers, w.write(batch[0].own)
	for _, c := range batch {
		n := w.publisher.conclude(c, written, errs)
		written, errs = written[n:], errs[n:]
	}
	clear(w.messages)
	clear(w.pointers)
	clear(w.errs)
	w.payloads.empty()
}

// gather copies what is to be written: messages, since a backend fills them in,
// and payloads, since a caller may leave and change them; but not one that writes
// itself.
func (w *writer) gather(c *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = !c.left
	if c.left {
		return
	}
	for i, m := range c.msgs {
		switch {
		case c.states[i] != waiting:
		case c.own != nil:
			w.messages = append(w.messages, *m)
		default:
			w.copyMessage(m)
		}
	}
}

func (w *writer) copyMessage(m *backend.Message) {
	n := len(w.messages)
	w.messages = append(w.messages, *m)
	w.messages[n].Payload = w.payloads.copy(m.Payload)
}

// write stores w.pointers in as few calls as the limits allow and returns one
// error for each. With own, the context of a caller that writes itself, it ends
// with that. Behind a call of which something may be stored and may be not it makes no
// other: what is repeated of that one would come behind what the other stores.
func (w *writer) write(own context.Context) []error {
	w.errs = w.errs[:0]
	behind := false
	for rest := w.pointers; len(rest) > 0; {
		n := w.publisher.portion(rest)
		var err error
		if behind {
			err = notSent(errBehindUnknown)
			n = len(rest)
		} else {
			err = w.writeSome(own, rest[:n:n])
		}
		for i := range n {
			e := backend.ErrorAt(err, i)
			w.errs = append(w.errs, e)
			behind = behind || e != nil && !backend.NotStored(e)
		}
		rest = rest[n:]
	}
	return w.errs
}

var errBehindUnknown = errors.New("what goes before may not be stored")

func (w *writer) writeSome(own context.Context, msgs []*backend.Message) error {
	p := w.publisher
	if own == nil {
		return p.backend.Publish(w.calling.get(p.done, p.timeout), msgs)
	}
	if err := own.Err(); err != nil {
		return notSent(err)
	}
	timeout := p.timeout - p.timeout/8 // as it may last an eighth longer
	if own.Done() == nil {
		return p.backend.Publish(w.owns.get(p.done, timeout), msgs)
	}
	ctx, release := w.owns.endingWith(own, p.done, timeout)
	defer release()
	return p.backend.Publish(ctx, msgs)
}

// end frees what the contexts need.
func (w *writer) end() {
	w.calling.end()
	w.owns.end()
}
