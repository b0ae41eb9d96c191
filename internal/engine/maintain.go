package engine

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// upkeep calls the backend's Maintainer for each topic and group with a subscription in this
// bus. Subscriptions to the same group share one job.
type upkeep struct {
	engine     *Engine
	maintainer backend.Maintainer // nil if the backend needs none

	mu   sync.Mutex
	jobs map[[2]string]*job
}

// A job is the maintenance of one topic and group.
type job struct {
	*recurring
	users int // the number of subscriptions that share the job
}

func (u *upkeep) init(e *Engine) {
	u.engine = e
	u.maintainer, _ = backend.As[backend.Maintainer](e.backend)
	u.jobs = map[[2]string]*job{}
}

// join starts the job of a topic and group. If the job runs already, the new subscription
// shares it.
func (u *upkeep) join(topic, group string) {
	if u.maintainer == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	key := [2]string{topic, group}
	if j := u.jobs[key]; j != nil {
		j.users++
		return
	}
	again := newBackoff()
	u.jobs[key] = &job{users: 1, recurring: recur(firstMaintenance, func(r *recurring) {
		r.in(u.run(r.ctx, again, topic, group))
	})}
}

// leave ends the job when the last of its subscriptions leaves. It then waits until a run
// under way has ended.
func (u *upkeep) leave(topic, group string) {
	if u.maintainer == nil {
		return
	}
	key := [2]string{topic, group}
	u.mu.Lock()
	j := u.jobs[key]
	j.users--
	last := j.users == 0
	if last {
		delete(u.jobs, key)
	}
	u.mu.Unlock()
	if last {
		j.end()
	}
}

const (
	firstMaintenance   = 5 * time.Second // after Subscribe, to keep the start fast
	minMaintenance     = 100 * time.Millisecond
	maintenanceTimeout = 30 * time.Second
)

// run calls Maintain once for the topic and group. It returns the time until the next run.
// If Maintain fails, this time is the next wait of the parameter again.
func (u *upkeep) run(ctx context.Context, again *backoff.ExponentialBackOff, topic, group string) time.Duration {
	start := time.Now()
	next, err := u.maintain(ctx, topic, group)
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		u.engine.notifier.failed(observer.Maintain, observer.About{Topic: topic, Group: group}, 0, err)
		return again.NextBackOff()
	}
	again.Reset()
	next = max(next, minMaintenance)
	tell(u.engine.notifier.later.Maintained, observer.Maintained{Topic: topic, Group: group, Took: time.Since(start), Next: next})
	return next
}

// maintain makes one call of Maintain. A panic of the driver becomes an error.
func (u *upkeep) maintain(ctx context.Context, topic, group string) (next time.Duration, err error) {
	defer recovered(&err)
	ctx, cancel := context.WithTimeout(ctx, maintenanceTimeout)
	defer cancel()
	return u.maintainer.Maintain(ctx, topic, group)
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
