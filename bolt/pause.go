package bolt

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// traits are facts of a group that ResetGroup does not change. Most groups have none, and then
// store none.
type traits struct {
	ephemeral bool
	pause     backend.Pause // may be over
}

func (x *traits) encode() []byte {
	if !x.ephemeral && x.pause.Since.IsZero() {
		return nil
	}
	kind, since, until := uint64(0), x.pause.Since, x.pause.Until
	if x.ephemeral {
		kind = 1
	}
	b := pack(kind, uint64(since.Unix()), uint64(since.Nanosecond()), uint64(until.Unix()), uint64(until.Nanosecond()))
	return appendText(appendText(b, x.pause.By), x.pause.Why)
}

func decodeTraits(b []byte) (x traits) {
	if len(b) == 0 {
		return x
	}
	date := func(i int) (at time.Time) {
		if t := time.Unix(int64(number(b, i)), int64(number(b, i+1))); !t.IsZero() {
			at = t
		}
		return at
	}
	x.ephemeral, x.pause.Since, x.pause.Until = number(b, 0) == 1, date(1), date(3)
	texts := reader{rest: b[5*8:]}
	x.pause.By, x.pause.Why = string(texts.text()), string(texts.text())
	return x
}

// paused returns the present pause, or the zero Pause.
func (x *traits) paused(now time.Time) backend.Pause {
	if until := x.pause.Until; x.pause.Since.IsZero() || !until.IsZero() && !now.Before(until) {
		return backend.Pause{}
	}
	return x.pause
}

// Pause implements [backend.Pauser].
func (b *Backend) Pause(ctx context.Context, topic, name string, p backend.Pause) error {
	if err := p.Check(); err != nil {
		return failed("pause "+topic+"/"+name, err)
	}
	p.Since = time.Now()
	if !p.Until.IsZero() && !p.Until.After(p.Since) {
		p = backend.Pause{}
	}
	defer b.store.wake(topic) // members that wait learn of it
	return b.update(ctx, "pause "+topic+"/"+name, func(t *txn) error { return t.setPause(topic, name, p) })
}

// Resume implements [backend.Pauser].
func (b *Backend) Resume(ctx context.Context, topic, name string) error {
	defer b.store.wake(topic)
	return b.update(ctx, "resume "+topic+"/"+name, func(t *txn) error { return t.setPause(topic, name, backend.Pause{}) })
}

// setPause replaces the pause of a group.
func (t *txn) setPause(topic, name string, p backend.Pause) error {
	g, err := t.find(topic, name)
	if err == nil && g.pause != p {
		g.pause = p
		g.save()
	}
	return err
}

// Paused implements [backend.Pauser].
func (b *Backend) Paused(ctx context.Context, topic, name string) (p backend.Pause, err error) {
	err = b.view(ctx, "ask for the pause of "+topic+"/"+name, func(t *txn) error {
		g, err := t.find(topic, name)
		if err == nil {
			p = g.paused(time.Now())
		}
		return err
	})
	return p, err
}
