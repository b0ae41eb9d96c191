// Package verbs collects the optional verbs of a backend. Every package of the suite
// that records or harms the calls of a backend uses it.
package verbs

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// All combines the optional verbs of a [backend.Backend].
type All interface {
	backend.Declarer
	backend.Maintainer
	backend.Reader
	backend.Remover
	backend.Statser
	backend.Admin
	backend.Pauser
	backend.Settler
	backend.Pinger
	backend.Clocker
}

// Verbs calls the optional verbs of a backend. A call panics if the backend lacks the verb.
type Verbs struct {
	// Of is the backend.
	Of backend.Backend

	// Around runs do, which is a call of a verb. Of names the topic and the group of the
	// call; it is "" if the call has none. Around may return before do does.
	Around func(ctx context.Context, verb, of string, do func() error) error
}

var _ All = Verbs{}

// as returns the verb T of the backend.
func as[T any](v Verbs) T {
	t, _ := backend.As[T](v.Of)
	return t
}

// ask runs do, which has a result, within Around.
func ask[T any](ctx context.Context, v Verbs, verb, of string, do func() (T, error)) (T, error) {
	results := make(chan T, 1)
	err := v.Around(ctx, verb, of, func() error {
		result, err := do()
		results <- result
		return err
	})
	select {
	case result := <-results:
		return result, err
	default: // Around has not run do to its end
		var none T
		return none, err
	}
}

// Declare implements [backend.Declarer].
func (v Verbs) Declare(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
	return ask(ctx, v, "Declare", topic, func() (backend.TopicSettings, error) { return as[backend.Declarer](v).Declare(ctx, topic, d) })
}

// Maintain implements [backend.Maintainer].
func (v Verbs) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	return ask(ctx, v, "Maintain", topic+"/"+group, func() (time.Duration, error) {
		return as[backend.Maintainer](v).Maintain(ctx, topic, group)
	})
}

// Read implements [backend.Reader].
func (v Verbs) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	return ask(ctx, v, "Read", topic, func() ([]backend.Message, error) {
		return as[backend.Reader](v).Read(ctx, topic, from, limit)
	})
}

// Remove implements [backend.Remover].
func (v Verbs) Remove(ctx context.Context, topic string, positions []string) error {
	return v.Around(ctx, "Remove", topic, func() error { return as[backend.Remover](v).Remove(ctx, topic, positions) })
}

// Stats implements [backend.Statser].
func (v Verbs) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	return ask(ctx, v, "Stats", topic+"/"+group, func() (backend.Stats, error) {
		return as[backend.Statser](v).Stats(ctx, topic, group)
	})
}

// Ping implements [backend.Pinger].
func (v Verbs) Ping(ctx context.Context) error {
	return v.Around(ctx, "Ping", "", func() error { return as[backend.Pinger](v).Ping(ctx) })
}

// Now implements [backend.Clocker].
func (v Verbs) Now(ctx context.Context, topic string) (time.Time, error) {
	return ask(ctx, v, "Now", topic, func() (time.Time, error) { return as[backend.Clocker](v).Now(ctx, topic) })
}

// Topics implements [backend.Admin].
func (v Verbs) Topics(ctx context.Context) ([]string, error) {
	return ask(ctx, v, "Topics", "", func() ([]string, error) { return as[backend.Admin](v).Topics(ctx) })
}

// Groups implements [backend.Admin].
func (v Verbs) Groups(ctx context.Context, topic string) ([]string, error) {
	return ask(ctx, v, "Groups", topic, func() ([]string, error) { return as[backend.Admin](v).Groups(ctx, topic) })
}

// DeleteTopic implements [backend.Admin].
func (v Verbs) DeleteTopic(ctx context.Context, topic string) error {
	return v.Around(ctx, "DeleteTopic", topic, func() error { return as[backend.Admin](v).DeleteTopic(ctx, topic) })
}

// DeleteGroup implements [backend.Admin].
func (v Verbs) DeleteGroup(ctx context.Context, topic, group string) error {
	return v.Around(ctx, "DeleteGroup", topic+"/"+group, func() error {
		return as[backend.Admin](v).DeleteGroup(ctx, topic, group)
	})
}

// ResetGroup implements [backend.Admin].
func (v Verbs) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	return v.Around(ctx, "ResetGroup", topic+"/"+group, func() error {
		return as[backend.Admin](v).ResetGroup(ctx, topic, group, start)
	})
}

// Pause implements [backend.Pauser].
func (v Verbs) Pause(ctx context.Context, topic, group string, p backend.Pause) error {
	return v.Around(ctx, "Pause", topic+"/"+group, func() error { return as[backend.Pauser](v).Pause(ctx, topic, group, p) })
}

// Resume implements [backend.Pauser].
func (v Verbs) Resume(ctx context.Context, topic, group string) error {
	return v.Around(ctx, "Resume", topic+"/"+group, func() error { return as[backend.Pauser](v).Resume(ctx, topic, group) })
}

// Paused implements [backend.Pauser].
func (v Verbs) Paused(ctx context.Context, topic, group string) (backend.Pause, error) {
	return ask(ctx, v, "Paused", topic+"/"+group, func() (backend.Pause, error) {
		return as[backend.Pauser](v).Paused(ctx, topic, group)
	})
}

// Settle implements [backend.Settler].
func (v Verbs) Settle(ctx context.Context, topic, group, position string) (had bool, err error) {
	return ask(ctx, v, "Settle", topic+"/"+group, func() (bool, error) {
		return as[backend.Settler](v).Settle(ctx, topic, group, position)
	})
}

// Settled implements [backend.Settler].
func (v Verbs) Settled(ctx context.Context, topic, group string, positions []string) ([]bool, error) {
	return ask(ctx, v, "Settled", topic+"/"+group, func() ([]bool, error) {
		return as[backend.Settler](v).Settled(ctx, topic, group, positions)
	})
}
