package eventbus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A shelf is a small backend: a log for each topic, and for each group the time from which
// each message is due. Its groups begin with the earliest message.
type shelf struct {
	mu     sync.Mutex
	topics map[string][][]byte
	due    map[string]time.Time // by group, topic and position
}

func newShelf() *shelf {
	return &shelf{topics: map[string][][]byte{}, due: map[string]time.Time{}}
}

// Publish copies the messages, because they are lent.
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

// Close frees nothing; it closes shelves and seats.
func (s *shelf) Close() error { return nil }
