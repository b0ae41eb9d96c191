package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

// A Topic has the settings of a topic, and the groups that are to exist before their members.
type Topic struct {
	Settings backend.TopicSettings
	Groups   []string
}

// newSettings returns the declarations of topics, by name.
func newSettings(e *Engine, all map[string]Topic) map[string]*first {
	settings := make(map[string]*first, len(all))
	for name, t := range all {
		settings[name] = newFirst(func(ctx context.Context) error {
			if err := t.declare(ctx, e, name); err != nil {
				return fmt.Errorf("declaring the topic %s: %w", name, err)
			}
			return nil
		})
	}
	return settings
}

// declare stores the settings of a topic, and makes its groups. If the topic has other settings,
// the operator is told.
func (t Topic) declare(ctx context.Context, e *Engine, name string) error {
	var has backend.TopicSettings
	err := driving("Declare", func() (err error) {
		has, err = backend.Declare(ctx, e.backend, name, backend.Declaration{Settings: t.Settings})
		return err
	})
	for _, group := range t.Groups {
		if err != nil {
			break
		}
		err = driving("Attach", func() error { return backend.DeclareGroup(ctx, e.backend, name, group, backend.StartEarliest) })
	}
	if err == nil && has != t.Settings && t.Settings != (backend.TopicSettings{}) {
		e.notifier.noticed(backend.Notice{Topic: name, Text: fmt.Sprintf(
			"the topic has other settings, which stay in force: %v; this program states %v; eventbus topics set changes them", has, t.Settings)})
	}
	return err
}

// Declare declares all topics with settings, and stores the numbers of partitions.
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
