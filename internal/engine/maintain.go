package engine

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

const (
	firstMaintenance   = 5 * time.Second // after Subscribe, to keep the start fast
	minMaintenance     = 100 * time.Millisecond
	maintenanceTimeout = 30 * time.Second
)

// A job is a recurring job that several subscriptions share.
type job struct {
	*recurring
	users int // guarded by Engine.mu
}

// maintain starts to call the backend's Maintainer, if there is one, for the group of s in topic.
// Subscriptions to the same group share one job. The caller holds mu.
func (e *Engine) maintain(topic string, s *Subscription) {
	m, ok := backend.As[backend.Maintainer](e.backend)
	group := s.Group
	key := [2]string{topic, group}
	if j := e.jobs[key]; j != nil {
		j.users++
	}
	if !ok || e.jobs[key] != nil {
		return
	}
	again, first := newBackoff(), firstMaintenance
	if s.Ephemeral { // otherwise the backend may take the member for a dead one
		first = min(first, 3*s.Lease)
	}
	e.jobs[key] = &job{users: 1}
	e.jobs[key].recurring = recur(first, func(r *recurring) {
		start, next := time.Now(), time.Duration(0)
		ctx, cancel := context.WithTimeout(r.ctx, maintenanceTimeout)
		defer cancel()
		err := driving("Maintain", func() (err error) { next, err = m.Maintain(ctx, topic, group); return err })
		switch {
		case r.ctx.Err() != nil:
			return
		case err != nil:
			e.notifier.failed(observer.Maintain, observer.About{Topic: topic, Group: group}, 0, err)
			next = again.NextBackOff()
		default:
			again.Reset()
			next = max(next, minMaintenance)
			tell(e.notifier.later.Maintained, observer.Maintained{Topic: topic, Group: group, Took: time.Since(start), Next: next})
		}
		r.in(next)
	})
}
