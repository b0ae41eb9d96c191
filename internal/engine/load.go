package engine

import (
	"context"

	"github.com/seed41896749/eventbus/backend"
)

// A Load has the Holds of a subscription at one moment.
type Load struct {
	Events  int
	Bytes   int64
	Running int // of Events: with a handler
}

// Load returns the load of now.
func (s *Subscription) Load() Load {
	d := &s.sched
	d.mu.Lock()
	defer d.unlock()
	l := Load{Running: d.working}
	for _, h := range d.reads.all() {
		l.Events++
		l.Bytes += h.size
	}
	return l
}

// Stats asks the backend about the group. A panic of the driver becomes an error.
func (s *Subscription) Stats(ctx context.Context) (stats backend.Stats, err error) {
	defer recovered(&err)
	return backend.StatsOf(ctx, s.engine.backend, s.Topic, s.Group)
}
