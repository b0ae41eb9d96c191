package later

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// clean removes records. It begins with events that were replaced or cancelled, because the
// record that says so may go later only. Then it removes published events and old decisions.
func (s *shift) clean(ctx context.Context) error {
	v := s.view
	if err := s.remove(ctx, &v.spent); err != nil {
		return err
	}
	if err := s.remove(ctx, &s.done); err != nil {
		return err
	}
	expired := v.expired(time.Now())
	n := len(expired)
	if err := s.remove(ctx, &expired); err != nil {
		return err
	}
	for _, d := range v.verdicts[:n] {
		delete(v.results, d.position)
	}
	v.verdicts = v.verdicts[n:]
	return nil
}

// remove removes the records at positions, and empties the list.
func (s *shift) remove(ctx context.Context, positions *[]string) error {
	for some := range slices.Chunk(*positions, batch) {
		if err := backend.Remove(ctx, s.Backend, Topic(s.Topic), some); err != nil && !errors.Is(err, backend.ErrGone) {
			return err
		}
	}
	*positions = nil
	return nil
}
