package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

// A Topic describes a topic's settings, and the groups that should exist before their members join.
type Topic struct {
	Settings backend.TopicSettings
	Groups   []string
}

// newSettings returns the declarations of topics, by name.
func newSettings(e *Engine, all map[string]Topic) map[string]*setup {
	settings := make(map[string]*setup, len(all))
	for name, t := range all {
		settings[name] = newSetup(func(ctx context.Context) error {
			if err := t.declare(ctx, e, name); err != nil {
				return fmt.Errorf("declaring the topic %s: %w", name, err)
			}
			return nil
		})
	}
	return settings
}

// declare stores the settings of a topic and creates its groups. If the topic already exists with
// different settings, the operator is informed.
func (t Topic) declare(ctx context.Context, e *Engine, name string) error {
	var has backend.TopicSettings
	err := callDriver("Declare", func() (err error) {
		has, err = backend.Declare(ctx, e.backend, name, backend.Declaration{Settings: t.Settings})
		return err
	})
	for _, group := range t.Groups {
		if err != nil {
			break
		}
		err = callDriver("Attach", func() error { return backend.DeclareGroup(ctx, e.backend, name, group, backend.StartEarliest) })
	}
	if err == nil && has != t.Settings && t.Settings != (backend.TopicSettings{}) {
		e.notifier.noticed(backend.Notice{Topic: name, Text: fmt.Sprintf(
			"the topic has other settings, which stay in force: %v; this program states %v; eventbus topics set changes them", has, t.Settings)})
	}
	return err
}

// Declare declares all topics that have settings, and stores the numbers of partitions.
func (e *Engine) Declare(ctx context.Context) error {
	for _, topic := range slices.Sorted(maps.Keys(e.partitions)) {
		if err := e.partitions[topic].agree().do(ctx); err != nil {
			return err
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(e.settings)) {
		if err := e.settings[topic].do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// DeclareGroup creates the group of c in each of its topics, with the settings of the topic, and
// declares the dead-letter topics. It skips patterns, and doesn't create a group that lives only as
// long as its member.
func (e *Engine) DeclareGroup(ctx context.Context, c Config) error {
	if p := e.partitions[c.Topic]; p != nil {
		if err := p.agree().do(ctx); err != nil {
			return err
		}
	}
	topics, letters := c.names(), map[string]bool{}
	for _, topic := range topics {
		if letter := c.deadLetter(topic); !letters[letter] {
			letters[letter] = true
			if err := e.checkDeadLetter(ctx, letter); err != nil {
				return err
			}
		}
	}
	return firstOf(concurrently(make(chan struct{}, maxConcurrentAttach), len(topics), func(i int) error {
		err := e.settings[topics[i]].do(ctx)
		if err == nil && !c.Ephemeral {
			ctx, cancel := context.WithTimeout(ctx, attachTimeout)
			defer cancel()
			err = callDriver("Attach", func() error { return backend.DeclareGroup(ctx, e.backend, topics[i], c.Group, c.Start) })
		}
		if err != nil && len(topics) > 1 {
			err = fmt.Errorf("topic %s: %w", topics[i], err)
		}
		return err
	}))
}

// checkDeadLetter returns an error if the backend can declare topics but refuses to declare the
// given dead-letter topic. An empty topic is never an error.
func (e *Engine) checkDeadLetter(ctx context.Context, topic string) error {
	if topic == "" {
		return nil
	}
	err := backend.CheckName(topic) // with a suffix, the name may be too long
	if err == nil {
		err = callDriver("Declare", func() error {
			_, err := backend.Declare(ctx, e.backend, topic, backend.Declaration{})
			return err
		})
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("dead-letter topic %s: %w", topic, err)
	}
	return nil
}
