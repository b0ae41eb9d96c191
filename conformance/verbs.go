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

// verbsOf returns the verbs of b, a backend whose calls are recorded.
func verbsOf(b backend.Backend) verbs { return verbs{b.(*recorded)} }

// verb returns the verb T of the backend, and notes its call until end is called.
func verb[T any](ctx context.Context, v verbs, name, of string) (t T, end func(*error)) {
	t, _ = backend.As[T](v.Backend)
	return t, v.calls.record(ctx, name, of)
}

func (v verbs) Declare(ctx context.Context, topic string) (err error) {
	d, end := verb[backend.Declarer](ctx, v, "Declare", topic)
	defer end(&err)
	return d.Declare(ctx, topic)
}

func (v verbs) Maintain(ctx context.Context, topic, group string) (next time.Duration, err error) {
	m, end := verb[backend.Maintainer](ctx, v, "Maintain", topic+"/"+group)
	defer end(&err)
	return m.Maintain(ctx, topic, group)
}

func (v verbs) Read(ctx context.Context, topic, from string, limit int) (msgs []backend.Message, err error) {
	r, end := verb[backend.Reader](ctx, v, "Read", topic)
	defer end(&err)
	return r.Read(ctx, topic, from, limit)
}

func (v verbs) Stats(ctx context.Context, topic, group string) (stats backend.Stats, err error) {
	s, end := verb[backend.Statser](ctx, v, "Stats", topic+"/"+group)
	defer end(&err)
	return s.Stats(ctx, topic, group)
}

func (v verbs) Ping(ctx context.Context) (err error) {
	p, end := verb[backend.Pinger](ctx, v, "Ping", "")
	defer end(&err)
	return p.Ping(ctx)
}

func (v verbs) Topics(ctx context.Context) (names []string, err error) {
	a, end := verb[backend.Admin](ctx, v, "Topics", "")
	defer end(&err)
	return a.Topics(ctx)
}

func (v verbs) Groups(ctx context.Context, topic string) (names []string, err error) {
	a, end := verb[backend.Admin](ctx, v, "Groups", topic)
	defer end(&err)
	return a.Groups(ctx, topic)
}

func (v verbs) DeleteTopic(ctx context.Context, topic string) (err error) {
	a, end := verb[backend.Admin](ctx, v, "DeleteTopic", topic)
	defer end(&err)
	return a.DeleteTopic(ctx, topic)
}

func (v verbs) DeleteGroup(ctx context.Context, topic, group string) (err error) {
	a, end := verb[backend.Admin](ctx, v, "DeleteGroup", topic+"/"+group)
	defer end(&err)
	return a.DeleteGroup(ctx, topic, group)
}

func (v verbs) ResetGroup(ctx context.Context, topic, group string, start backend.Start) (err error) {
	a, end := verb[backend.Admin](ctx, v, "ResetGroup", topic+"/"+group)
	defer end(&err)
	return a.ResetGroup(ctx, topic, group, start)
}
