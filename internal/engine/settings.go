package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// A Topic has the settings of a topic, and the groups that are to exist before their members.
type Topic struct {
	Settings backend.TopicSettings
	Groups   []string
}

// A settings has the settings of topics, each of which is declared before the first use of its
// topic.
type settings struct {
	all map[string]Topic

	mu   sync.Mutex
	todo map[string]bool // the topics of all that are not declared
	some atomic.Bool     // todo is not empty
}

func newSettings(all map[string]Topic) *settings {
	s := &settings{all: maps.Clone(all), todo: map[string]bool{}}
	for topic := range all {
		s.forget(topic)
	}
	return s
}

// forget makes the next use of a topic declare it, because it may be a new one.
func (s *settings) forget(topic string) {
	if _, ok := s.all[topic]; !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo[topic] = true
	s.some.Store(true)
}

func (s *settings) isDeclared(topic string) bool {
	if !s.some.Load() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.todo[topic]
}

func (s *settings) declared(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.todo, topic)
	s.some.Store(len(s.todo) > 0)
}

// Declare declares all topics with settings, and stores the numbers of partitions.
func (e *Engine) Declare(ctx context.Context) error {
	if err := e.partitions.agree(ctx, e.backend); err != nil {
		return err
	}
	for _, topic := range slices.Sorted(maps.Keys(e.settings.all)) {
		if err := e.declare(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

// declare declares a topic with settings, unless that was done. If the topic has other
// settings, the operator is told.
func (e *Engine) declare(ctx context.Context, topic string) error {
	if e.settings.isDeclared(topic) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	want := e.settings.all[topic].Settings
	var has backend.TopicSettings
	err := driving("Declare", func() (err error) {
		has, err = backend.Declare(ctx, e.backend, topic, backend.Declaration{Settings: want})
		return err
	})
	for _, group := range e.settings.all[topic].Groups {
		if err != nil {
			break
		}
		err = driving("Attach", func() error { return backend.DeclareGroup(ctx, e.backend, topic, group, backend.StartEarliest) })
	}
	if err != nil {
		return fmt.Errorf("declaring the topic %s: %w", topic, err)
	}
	e.settings.declared(topic)
	if has != want && want != (backend.TopicSettings{}) {
		e.notifier.noticed(backend.Notice{Topic: topic, Text: fmt.Sprintf(
			"the topic has other settings, which stay in force: %v; this program states %v; eventbus topics set changes them", has, want)})
	}
	return nil
}

// declareAll declares the topics of msgs.
func (e *Engine) declareAll(ctx context.Context, msgs []*backend.Message) error {
	if !e.settings.some.Load() {
		return nil
	}
	for i, m := range msgs {
		if i == 0 || m.Topic != msgs[i-1].Topic {
			if err := e.declare(ctx, m.Topic); err != nil {
				return err
			}
		}
	}
	return nil
}
