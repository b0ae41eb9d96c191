package groupstats

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pages"
)

// A tally counts the letters of one topic by reading them. Since letters can be removed anywhere in
// the topic, a tally begins again from time to time. In between it reads only new letters.
type tally struct {
	topic  string
	redact Redact

	count census
	from  backend.Start
	began time.Time // of the present count; zero: none
	whole bool      // the present count has reached the end of the topic
	full  bool      // the present count has reached a bound
	shown *Letters  // the last result
}

// The bounds of one count.
const (
	mostLetters     = 100_000
	mostLetterBytes = 256 << 20
)

// again returns how long a count is good for. More letters cost more, and are counted less often.
func (t *tally) again() time.Duration {
	return max(time.Minute, time.Duration(t.count.n)*3*time.Millisecond)
}

// anew lets the next step begin another count. Until its end the last result is shown, because the new count
// of many letters takes a while.
func (t *tally) anew() {
	t.began = time.Time{}
	if t.shown != nil && t.shown.N > 0 {
		shown := *t.shown // others have the last one
		shown.Again = true
		t.shown = &shown
	}
}

// step continues the count within b, and returns the letters as far as they are known.
func (t *tally) step(ctx context.Context, b backend.Backend, timeout time.Duration, left *pages.Bounds, now time.Time) (*Letters, error) {
	if t.began.IsZero() || (t.whole || t.full) && now.Sub(t.began) > t.again() {
		*t = tally{topic: t.topic, redact: t.redact, began: now, shown: t.shown, count: census{classes: map[Kind]*Class{}}}
	}
	read := &pages.Reader{Backend: b, Topic: t.topic, From: t.from, Bounds: left, Timeout: timeout}
	for !t.full {
		ms, err := read.Next(ctx, pages.MostPage)
		switch {
		case errors.Is(err, pages.ErrSpent):
			return t.show(), nil
		case errors.Is(err, backend.ErrGone): // the topic is new, or was deleted
			*t = tally{topic: t.topic, redact: t.redact, began: now, whole: true, count: census{classes: map[Kind]*Class{}}}
			return t.show(), nil
		case errors.Is(err, errors.ErrUnsupported):
			return &Letters{Topic: t.topic, Unknown: true, Counted: now}, nil
		case err != nil:
			return nil, err
		case len(ms) == 0:
			t.whole = true
			return t.show(), nil
		}
		t.whole = false // until an empty page
		for i := range ms {
			t.count.add(&ms[i], t.redact)
		}
		t.from = read.From
		t.full = t.count.n >= mostLetters || t.count.bytes >= mostLetterBytes
	}
	return t.show(), nil
}

// show returns the result of the present count, or of the one before until the present one is over.
func (t *tally) show() *Letters {
	if t.whole || t.full || t.shown == nil || t.shown.More && !t.shown.Again {
		t.shown = t.count.letters(t.topic, !t.whole, t.began)
	}
	return t.shown
}
