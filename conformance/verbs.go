package conformance

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// verbs are the optional verbs of the backend under test, as laws call them: with
// their calls recorded. Those that the backend lacks must not be called.
type verbs struct{ *recorded }

var (
	_ backend.Declarer   = verbs{}
	_ backend.Maintainer = verbs{}
	_ backend.Reader     = verbs{}
	_ backend.Statser    = verbs{}
	_ backend.Admin      = verbs{}
	_ backend.Pinger     = verbs{}
)

func (e *driverEnv) verbs() verbs { return verbs{e.b.(*recorded)} }

// verb returns the verb T of the backend, and notes its call until end is called.
func verb[T any](ctx context.Context, v verbs, name, of string) (t T, end func()) {
	t, _ = backend.As[T](v.Backend)
	return t, v.calls.record(ctx, name, of)
}

func (v verbs) Declare(ctx context.Context, topic string) error {
	d, end := verb[backend.Declarer](ctx, v, "Declare", topic)
	defer end()
	return d.Declare(ctx, topic)
}

func (v verbs) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	m, end := verb[backend.Maintainer](ctx, v, "Maintain", topic+"/"+group)
	defer end()
	return m.Maintain(ctx, topic, group)
}

func (v verbs) Read(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
	r, end := verb[backend.Reader](ctx, v, "Read", topic)
	defer end()
	return r.Read(ctx, topic, from, limit)
}

func (v verbs) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	s, end := verb[backend.Statser](ctx, v, "Stats", topic+"/"+group)
	defer end()
	return s.Stats(ctx, topic, group)
}

func (v verbs) Ping(ctx context.Context) error {
	p, end := verb[backend.Pinger](ctx, v, "Ping", "")
	defer end()
	return p.Ping(ctx)
}

func (v verbs) Topics(ctx context.Context) ([]string, error) {
	a, end := verb[backend.Admin](ctx, v, "Topics", "")
	defer end()
	return a.Topics(ctx)
}

func (v verbs) Groups(ctx context.Context, topic string) ([]string, error) {
	a, end := verb[backend.Admin](ctx, v, "Groups", topic)
	defer end()
	return a.Groups(ctx, topic)
}

func (v verbs) DeleteTopic(ctx context.Context, topic string) error {
	a, end := verb[backend.Admin](ctx, v, "DeleteTopic", topic)
	defer end()
	return a.DeleteTopic(ctx, topic)
}

func (v verbs) DeleteGroup(ctx context.Context, topic, group string) error {
	a, end := verb[backend.Admin](ctx, v, "DeleteGroup", topic+"/"+group)
	defer end()
	return a.DeleteGroup(ctx, topic, group)
}

func (v verbs) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	a, end := verb[backend.Admin](ctx, v, "ResetGroup", topic+"/"+group)
	defer end()
	return a.ResetGroup(ctx, topic, group, start)
}
