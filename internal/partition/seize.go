package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A seized has the tokens of a group that a change has taken.
type seized struct {
	*tokens
	claims []*Claim
}

const seizeTime = 3 * time.Second // without another token, they are of a member

// seize takes the tokens of all partitions in all groups, for longer than the change may take.
func (w *changing) seize(ctx context.Context) error {
	for _, group := range w.sharing {
		t, err := openTokens(ctx, w.Backend, w.Topic, group, w.before, changeTime, func(backend.Notice) {})
		if err != nil {
			return fmt.Errorf("the tokens of %s: %w", group, err)
		}
		w.held = append(w.held, seized{tokens: t})
		if err := w.held[len(w.held)-1].seize(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

func (s *seized) seize(ctx context.Context, group string) error {
	for began := time.Now(); len(s.claims) < s.number; {
		wait, cancel := context.WithTimeout(ctx, takeWait)
		claims, err := s.receive(wait, s.number-len(s.claims), changeTime)
		over := wait.Err() != nil
		cancel()
		s.claims = append(s.claims, claims...)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, backend.ErrPaused):
			return fmt.Errorf("the group %s is paused in %s, so that its tokens cannot be taken: resume it there", group, s.topic)
		case err != nil && !over:
			return fmt.Errorf("the tokens of %s: %w", group, err)
		case len(claims) > 0:
			began = time.Now()
		case time.Since(began) >= seizeTime:
			return &BusyError{Topic: Whole(s.topic), Group: group, Owned: s.missing()}
		}
	}
	return nil
}

// missing returns the partitions whose tokens s does not have.
func (s *seized) missing() (owned []int) {
	for p := range s.number {
		if !slices.ContainsFunc(s.claims, func(c *Claim) bool { return c.Partition == p }) {
			owned = append(owned, p)
		}
	}
	return owned
}

// epochs returns a number that no epoch so far was greater than.
func (w *changing) epochs() int {
	most := 0
	for _, s := range w.held {
		for _, c := range s.claims {
			most = max(most, c.Epoch)
		}
	}
	return w.past + most
}

// release gives all tokens back. If it cannot, their leases end.
func (w *changing) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	for _, s := range w.held {
		_ = concurrently(0, len(s.claims), func(i int) error { return s.giveBack(ctx, s.claims[i]) })
		_ = s.source.Close() // may fail, because the topic of the owners was deleted
	}
}
