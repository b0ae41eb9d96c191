package pages

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// At returns the message at a position and moves r behind it. If the topic does not have the message, the error matches
// [backend.ErrGone]. A backend can only read from a time or from behind a message, so At first searches for a time shortly
// before the message, with about 20 reads of one message, and reads on from there.
func (r *Reader) At(ctx context.Context, position string) (*backend.Message, error) {
	now, err := backend.Now(ctx, r.Backend, r.Topic)
	if err != nil {
		return nil, err
	}
	longest := now.Sub(time.Unix(0, 0))
	young, old := time.Duration(0), time.Second // the message is older than young, and as old as old or younger
	for {
		before, err := r.reaches(ctx, now.Add(-old), position)
		if err != nil {
			return nil, err
		}
		if before || old == longest {
			break
		}
		young, old = old, min(16*old, longest)
	}
	for old-young > time.Millisecond {
		middle := young + (old-young)/2
		before, err := r.reaches(ctx, now.Add(-middle), position)
		if err != nil {
			return nil, err
		}
		if before {
			old = middle
		} else {
			young = middle
		}
	}
	r.From = backend.StartAt(now.Add(-old))
	for {
		ms, err := r.Next(ctx, MostPage)
		if err != nil {
			return nil, err
		}
		for i := range ms {
			if ms[i].Position == position {
				r.From = backend.StartAfter(position)
				return &ms[i], nil
			}
			if ms[i].Position > position {
				ms = nil
				break
			}
		}
		if len(ms) == 0 {
			return nil, fmt.Errorf("the message at %s: %w", position, backend.ErrGone)
		}
	}
}

// reaches reports whether the first message since a time is at the position or before it.
func (r *Reader) reaches(ctx context.Context, since time.Time, position string) (bool, error) {
	r.From = backend.StartAt(since)
	ms, err := r.Next(ctx, 1)
	return len(ms) > 0 && ms[0].Position <= position, err
}
