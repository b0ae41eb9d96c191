package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

// DeclareGroup makes the group of c in each of its topics, with the settings of the topic, and
// declares the dead-letter topics. It leaves out patterns, and a group that lives with its member.
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
	return firstOf(concurrently(make(chan struct{}, openAtOnce), len(topics), func(i int) error {
		err := e.settings[topics[i]].do(ctx)
		if err == nil && !c.Ephemeral {
			ctx, cancel := context.WithTimeout(ctx, attachTimeout)
			defer cancel()
			err = driving("Attach", func() error { return backend.DeclareGroup(ctx, e.backend, topics[i], c.Group, c.Start) })
		}
		if err != nil && len(topics) > 1 {
			err = fmt.Errorf("topic %s: %w", topics[i], err)
		}
		return err
	}))
}

// checkDeadLetter returns an error if the backend can declare topics and refuses to declare
// the dead-letter topic; empty: there is none.
func (e *Engine) checkDeadLetter(ctx context.Context, topic string) error {
	if topic == "" {
		return nil
	}
	err := backend.CheckName(topic) // with a suffix, the name may be too long
	if err == nil {
		err = driving("Declare", func() error {
			_, err := backend.Declare(ctx, e.backend, topic, backend.Declaration{})
			return err
		})
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("dead-letter topic %s: %w", topic, err)
	}
	return nil
}
