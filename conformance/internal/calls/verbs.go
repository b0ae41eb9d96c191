package calls

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Verbs has the optional verbs of the backend under test, with their calls in the log. A
// call panics if the backend lacks the verb.
type Verbs struct{ *Backend }

var (
	_ backend.Declarer   = Verbs{}
	_ backend.Maintainer = Verbs{}
	_ backend.Reader     = Verbs{}
	_ backend.Remover    = Verbs{}
	_ backend.Statser    = Verbs{}
	_ backend.Admin      = Verbs{}
	_ backend.Pinger     = Verbs{}
)

// VerbsOf returns the verbs of b, a backend whose calls are recorded.
func VerbsOf(b backend.Backend) Verbs { return Verbs{b.(*Backend)} }

// verb returns the verb T of the backend, and logs that a call of it begins. The caller
// calls end when the call has returned.
func verb[T any](ctx context.Context, v Verbs, name, of string) (t T, end func(*error)) {
	t, _ = backend.As[T](v.Backend)
	return t, v.calls.record(ctx, name, of)
}

// Declare implements [backend.Declarer].
func (v Verbs) Declare(ctx context.Context, topic string) (err error) {
	d, end := verb[backend.Declarer](ctx, v, "Declare", topic)
	defer end(&err)
	return d.Declare(ctx, topic)
}

// Maintain implements [backend.Maintainer].
func (v Verbs) Maintain(ctx context.Context, topic, group string) (next time.Duration, err error) {
	m, end := verb[backend.Maintainer](ctx, v, "Maintain", topic+"/"+group)
	defer end(&err)
	return m.Maintain(ctx, topic, group)
}

// Read implements [backend.Reader].
func (v Verbs) Read(ctx context.Context, topic, from string, limit int) (msgs []backend.Message, err error) {
	r, end := verb[backend.Reader](ctx, v, "Read", topic)
	defer end(&err)
	return r.Read(ctx, topic, from, limit)
}

// Remove implements [backend.Remover].
func (v Verbs) Remove(ctx context.Context, topic string, positions []string) (err error) {
	r, end := verb[backend.Remover](ctx, v, "Remove", topic)
	defer end(&err)
	return r.Remove(ctx, topic, positions)
}

// Stats implements [backend.Statser].
func (v Verbs) Stats(ctx context.Context, topic, group string) (stats backend.Stats, err error) {
	s, end := verb[backend.Statser](ctx, v, "Stats", topic+"/"+group)
	defer end(&err)
	return s.Stats(ctx, topic, group)
}

// Ping implements [backend.Pinger].
func (v Verbs) Ping(ctx context.Context) (err error) {
	p, end := verb[backend.Pinger](ctx, v, "Ping", "")
	defer end(&err)
	return p.Ping(ctx)
}

// Topics implements [backend.Admin].
func (v Verbs) Topics(ctx context.Context) (names []string, err error) {
	a, end := verb[backend.Admin](ctx, v, "Topics", "")
	defer end(&err)
	return a.Topics(ctx)
}

// Groups implements [backend.Admin].
func (v Verbs) Groups(ctx context.Context, topic string) (names []string, err error) {
	a, end := verb[backend.Admin](ctx, v, "Groups", topic)
	defer end(&err)
	return a.Groups(ctx, topic)
}

// DeleteTopic implements [backend.Admin].
func (v Verbs) DeleteTopic(ctx context.Context, topic string) (err error) {
	a, end := verb[backend.Admin](ctx, v, "DeleteTopic", topic)
	defer end(&err)
	return a.DeleteTopic(ctx, topic)
}

// DeleteGroup implements [backend.Admin].
func (v Verbs) DeleteGroup(ctx context.Context, topic, group string) (err error) {
	a, end := verb[backend.Admin](ctx, v, "DeleteGroup", topic+"/"+group)
	defer end(&err)
	return a.DeleteGroup(ctx, topic, group)
}

// ResetGroup implements [backend.Admin].
func (v Verbs) ResetGroup(ctx context.Context, topic, group string, start backend.Start) (err error) {
	a, end := verb[backend.Admin](ctx, v, "ResetGroup", topic+"/"+group)
	defer end(&err)
	return a.ResetGroup(ctx, topic, group, start)
}
