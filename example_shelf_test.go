package eventbus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A shelf is a backend of one's own: a log for each topic, and for each group the
// moment from which a message is due again. Its groups begin with the earliest.
type shelf struct {
	mu     sync.Mutex
	topics map[string][][]byte
	due    map[string]time.Time // by group, topic and position
}

func newShelf() *shelf {
	return &shelf{topics: map[string][][]byte{}, due: map[string]time.Time{}}
}

// Publish keeps copies: messages are lent.
func (s *shelf) Publish(_ context.Context, msgs []*backend.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range msgs {
		m.Position = fmt.Sprintf("%016d", len(s.topics[m.Topic]))
		stored, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("shelf: publish %s: %w", m.Topic, err)
		}
		s.topics[m.Topic] = append(s.topics[m.Topic], stored)
	}
	return nil
}

// Attach makes a member of a group.
func (s *shelf) Attach(_ context.Context, c backend.Config) (backend.Source, error) {
	return seat{shelf: s, Config: c}, nil
}

// Close has nothing to free, neither of a shelf nor of a seat.
func (s *shelf) Close() error { return nil }
