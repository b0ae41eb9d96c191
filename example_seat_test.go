package eventbus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A seat is one member of a group at a [shelf].
type seat struct {
	*shelf
	backend.Config
}

// Receive waits until a message is due, and makes it due again one lease later.
func (s seat) Receive(ctx context.Context, limit int, maxBytes int64) (ds []backend.Delivery, err error) {
	for ; len(ds) == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		ds = s.take(limit)
	}
	return ds, ctx.Err()
}

func (s seat) take(limit int) (ds []backend.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, stored := range s.topics[s.Topic] {
		at := fmt.Sprintf("%s/%s/%d", s.Group, s.Topic, i)
		if len(ds) < limit && time.Now().After(s.due[at]) {
			d := backend.Delivery{Token: at}
			d.Err = json.Unmarshal(stored, &d.Message)
			s.due[at] = time.Now().Add(s.Lease)
			ds = append(ds, d)
		}
	}
	return ds
}

// Ack removes deliveries from the group.
func (s seat) Ack(_ context.Context, ds []*backend.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		s.due[d.Token.(string)] = time.Unix(1<<40, 0)
	}
	return nil
}
