package presence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A writer writes the notes of one process, and removes old ones. One goroutine uses it at a time.
type writer struct {
	options Options
	bus     *eventbus.Bus
	backend backend.Backend
	process Process // the part that does not change

	written time.Time // when the last note was written; zero: the next turn writes one
	stated  []byte    // the lasting part of the last note
	own     []string  // the positions of own notes, the newest last
	swept   time.Time // when old notes of others were removed
}

const (
	keepNotes  = 10 * time.Minute // how long the note of a dead process stays, at least
	sweepEvery = 10 * time.Minute
	mostOwn    = 64 // own notes to remove later; the rest is removed as the ones of others are
)

func newWriter(b *eventbus.Bus, o Options, id string) *writer {
	return &writer{options: o, bus: b, backend: b.Backend(), process: thisProcess(o, id)}
}

// turn writes a note if it is due, or the subscriptions have changed.
func (w *writer) turn(ctx context.Context, now time.Time) error {
	subscriptions, more := describe(w.bus)
	stated, err := lasting(subscriptions)
	if err != nil {
		return err
	}
	if now.Sub(w.written) < w.options.Every && bytes.Equal(stated, w.stated) {
		return nil
	}
	p := w.process
	p.Subscriptions, p.More = subscriptions, more
	if err := w.write(ctx, &p); err != nil {
		return fmt.Errorf("presence: write to %s: %w", Topic, err)
	}
	w.written, w.stated = now, stated
	if now.Sub(w.swept) < sweepEvery {
		return nil
	}
	if err := w.sweep(ctx); err != nil {
		return fmt.Errorf("presence: remove old notes of %s: %w", Topic, err)
	}
	w.swept = now
	return nil
}

// write publishes a note, and removes the ones before.
func (w *writer) write(ctx context.Context, p *Process) error {
	p.Written = clock(ctx, w.backend, w.options.Timeout)
	m, err := p.message()
	if err != nil {
		return err
	}
	err = w.call(ctx, func(ctx context.Context) error {
		return backend.ErrorAt(w.backend.Publish(ctx, []*backend.Message{m}), 0)
	})
	if err != nil {
		return err // if it is stored nevertheless, the sweep of a process removes it
	}
	before := w.own
	w.own = append(w.own, strings.Clone(m.Position))
	if len(before) == 0 {
		return nil
	}
	if err := w.remove(ctx, before); err != nil {
		w.own = w.own[max(0, len(w.own)-mostOwn):]
		return err
	}
	w.own = w.own[len(before):]
	return nil
}

// sweep removes the notes of processes that have written none for long.
func (w *writer) sweep(ctx context.Context) error {
	now := clock(ctx, w.backend, w.options.Timeout)
	notes, err := read(ctx, w.backend, w.call)
	if err != nil {
		return err
	}
	var old []string
	for i := range notes {
		if p := &notes[i]; p.ID != w.process.ID && p.age(now) > max(keepNotes, p.patience()) {
			old = append(old, p.position)
		}
	}
	if len(old) == 0 {
		return nil
	}
	return w.remove(ctx, old)
}

// leave removes the own notes.
func (w *writer) leave(ctx context.Context) error {
	if len(w.own) == 0 {
		return nil
	}
	if err := w.remove(ctx, w.own); err != nil {
		return fmt.Errorf("presence: remove the note of %s: %w", w.process.Name, err)
	}
	w.own = nil
	return nil
}

func (w *writer) remove(ctx context.Context, positions []string) error {
	err := w.call(ctx, func(ctx context.Context) error { return backend.Remove(ctx, w.backend, Topic, positions) })
	if errors.Is(err, backend.ErrGone) {
		return nil
	}
	return err
}

// call calls f, for Options.Timeout at most.
func (w *writer) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.options.Timeout)
	defer cancel()
	return f(ctx)
}

// clock returns the time of the broker, so that notes of machines with different clocks can be
// compared. If the broker does not tell, it is the time of this process.
func clock(ctx context.Context, b backend.Backend, timeout time.Duration) time.Time {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if now, err := backend.Now(ctx, b, Topic); err == nil {
		return now.UTC()
	}
	return time.Now().UTC()
}
