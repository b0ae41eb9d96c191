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
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	if p := e.partitions[c.Topic]; p != nil {
		if err := p.agree(ctx, e.backend); err != nil {
			return err
		}
	}
	for _, topic := range c.names() {
		err := e.checkDeadLetter(ctx, c.deadLetter(topic))
		if err == nil {
			err = e.declare(ctx, topic)
		}
		if err == nil && !c.Ephemeral {
			err = driving("Attach", func() error { return backend.DeclareGroup(ctx, e.backend, topic, c.Group, c.Start) })
		}
		if err != nil && len(c.elements()) > 1 {
			err = fmt.Errorf("topic %s: %w", topic, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
