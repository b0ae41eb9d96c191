package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// ensure makes sure of a topic's stream, once.
func (b *Backend) ensure(ctx context.Context, topic string) error {
	b.mu.Lock()
	known := b.known[topic]
	b.mu.Unlock()
	if known {
		return nil
	}
	if err := b.stream(ctx, topic); err != nil {
		return classOf(ctx, err, false)
	}
	b.mu.Lock()
	b.known[topic] = true
	b.mu.Unlock()
	return nil
}

// forget makes ensure look again.
func (b *Backend) forget(topic string) {
	b.mu.Lock()
	delete(b.known, topic)
	b.mu.Unlock()
}

// stream looks for a topic's stream, and creates it if there is none. One that
// is there is taken as it is, unless it would lose messages.
func (b *Backend) stream(ctx context.Context, topic string) error {
	o := b.options.of(topic)
	want := jetstream.StreamConfig{
		Name:        b.streamName(topic),
		Description: "topic " + topic + " of an event bus",
		Subjects:    []string{b.subject(topic)},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		MaxBytes:    o.MaxBytes,
		Replicas:    o.Replicas,
		Storage:     o.Storage,
		Duplicates:  o.OnceWindow,
		AllowDirect: true,
	}
	s, err := b.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = b.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = b.js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return err
	}
	return drift(want, s.CachedInfo().Config)
}

// drift returns an error that says in what a stream differs from what it must be.
func drift(want, got jetstream.StreamConfig) error {
	var lines []string
	differ := func(what string, want, got any) {
		if w, g := fmt.Sprint(want), fmt.Sprint(got); w != g {
			lines = append(lines, fmt.Sprintf("%s is %s, must be %s", what, g, w))
		}
	}
	differ("subjects", want.Subjects, got.Subjects)
	differ("retention", want.Retention, got.Retention)
	differ("discard", want.Discard, got.Discard)
	if got.MaxAge != 0 {
		differ("max age", want.MaxAge, got.MaxAge)
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("%w: stream %s: %s", backend.ErrRefused, want.Name, strings.Join(lines, "; "))
}
