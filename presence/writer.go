package presence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A writer writes the heartbeats of one process and removes old ones. One goroutine uses it at a
// time.
type writer struct {
	options Options
	bus     *eventbus.Bus
	backend backend.Backend
	process Process // the part that does not change
	most    int     // the maximum size of a heartbeat in bytes

	written time.Time // when the last heartbeat was written; if zero, the next turn writes one
	stated  []byte    // the lasting part of the last heartbeat
	own     []string  // the positions of our own heartbeats, newest last
	unsure  bool      // a heartbeat of unknown outcome may be in the topic
	due     time.Time // when old heartbeats are removed next
}

const (
	keepNotes  = 10 * time.Minute // how long the heartbeat of a dead process stays, at least
	sweepEvery = 10 * time.Minute
	sweepFirst = time.Minute // the first sweep is at a random time within this, because many processes may start together
	mostOwn    = 16          // our own heartbeats in the topic; with that many, no further one is written
)

func newWriter(b *eventbus.Bus, o Options, id string) *writer {
	w := &writer{
		options: o, bus: b, backend: b.Backend(), process: thisProcess(o, id), most: mostNote,
		due: time.Now().Add(rand.N(sweepFirst)),
	}
	if n := backend.LimitsOf(w.backend).Payload; n > 0 {
		w.most = min(w.most, n-headerRoom)
	}
	return w
}

// headerRoom is enough for the headers of a heartbeat.
const headerRoom = 4 << 10

// turn writes a heartbeat if it is due or the subscriptions have changed, and removes old ones. It
// starts no further step once ended reports true. While old heartbeats cannot be removed, their
// number is bounded.
func (w *writer) turn(ctx context.Context, now time.Time, ended func() bool) error {
	subscriptions, more := describe(w.bus)
	stated, err := lasting(subscriptions)
	if err != nil {
		return err
	}
	if now.Sub(w.written) < w.options.Every && bytes.Equal(stated, w.stated) {
		return nil
	}
	if w.unsure {
		if err := w.sweep(ctx); err != nil {
			return err
		}
	}
	if len(w.own) < mostOwn && !ended() {
		p := w.process
		p.Subscriptions, p.More = subscriptions, more
		if err := w.write(ctx, &p); err != nil {
			return fmt.Errorf("presence: write to %s: %w", Topic, err)
		}
		w.written, w.stated = now, stated
	}
	if len(w.own) > 1 && !ended() {
		if err := w.remove(ctx, w.own[:len(w.own)-1]); err != nil {
			return fmt.Errorf("presence: remove the previous heartbeat from %s: %w", Topic, err)
		}
		w.own = w.own[len(w.own)-1:]
	}
	if !now.Before(w.due) && !ended() {
		if err := w.sweep(ctx); err != nil {
			return err
		}
		w.due = now.Add(sweepEvery)
	}
	return nil
}

// write publishes a heartbeat.
func (w *writer) write(ctx context.Context, p *Process) error {
	p.Written = clock(ctx, w.backend, w.options.Timeout)
	if w.process.Started.IsZero() {
		w.process.Started = p.Written
	}
	p.Started = w.process.Started
	m, err := p.message(w.most)
	if err != nil {
		return err
	}
	err = w.call(ctx, func(ctx context.Context) error {
		return backend.ErrorAt(w.backend.Publish(ctx, []*backend.Message{m}), 0)
	})
	if err != nil {
		w.unsure = w.unsure || !backend.NotStored(err)
		return err
	}
	w.own = append(w.own, strings.Clone(m.Position))
	return nil
}

// sweep removes the heartbeats of processes that have written none for long, and our own except for
// the newest.
func (w *writer) sweep(ctx context.Context) error {
	now := clock(ctx, w.backend, w.options.Timeout)
	var old []string
	err := read(ctx, w.backend, w.call, func(m *backend.Message) {
		s, ok := stampOf(m)
		switch {
		case !ok:
		case s.ID == w.process.ID && !slices.Contains(w.own, m.Position), s.ID != w.process.ID && s.age(now) > max(keepNotes, s.patience()):
			old = append(old, strings.Clone(m.Position))
		}
	})
	if errors.Is(err, errMany) { // the oldest of them are removed
		err = nil
	}
	for some := range slices.Chunk(old, pageSize) {
		err = cmp.Or(err, w.remove(ctx, some))
	}
	if err != nil {
		return fmt.Errorf("presence: remove old heartbeats of %s: %w", Topic, err)
	}
	w.unsure = false
	return nil
}

// leave removes our own heartbeats.
func (w *writer) leave(ctx context.Context) error {
	own := w.own
	if w.own = nil; w.unsure {
		if err := w.sweep(ctx); err != nil {
			return err
		}
	}
	if len(own) == 0 {
		return nil
	}
	if err := w.remove(ctx, own); err != nil {
		return fmt.Errorf("presence: remove the heartbeat of %s: %w", w.process.Name, err)
	}
	return nil
}

func (w *writer) remove(ctx context.Context, positions []string) error {
	err := w.call(ctx, func(ctx context.Context) error { return backend.Remove(ctx, w.backend, Topic, positions) })
	if errors.Is(err, backend.ErrGone) {
		return nil
	}
	return err
}

// call calls f with Options.Timeout.
func (w *writer) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.options.Timeout)
	defer cancel()
	return f(ctx)
}

// clock returns the broker's time, so that heartbeats of machines with different clocks can be
// compared, or the time of this process if the broker doesn't say.
func clock(ctx context.Context, b backend.Backend, timeout time.Duration) time.Time {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if now, err := backend.Now(ctx, b, Topic); err == nil {
		return now.UTC()
	}
	return time.Now().UTC()
}
