package engine

import (
	"context"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// upkeep has one maintenance loop for each topic and group that somebody in
// this bus is subscribed to, however many they are.
type upkeep struct {
	engine     *Engine
	maintainer backend.Maintainer // nil if the backend needs none
	ctx        context.Context
	stop       context.CancelFunc
	loops      sync.WaitGroup

	mu   sync.Mutex
	jobs map[[2]string]*job
}

// A job is one loop and how many want it.
type job struct {
	users int
	stop  context.CancelFunc
	ended chan struct{}
}

func (u *upkeep) init(e *Engine) {
	u.engine = e
	u.maintainer, _ = backend.As[backend.Maintainer](e.backend)
	u.jobs = map[[2]string]*job{}
	u.ctx, u.stop = context.WithCancel(context.Background())
}

// join starts the loop of topic and group, or shares it.
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
	ctx, cancel := context.WithCancel(u.ctx)
	j := &job{users: 1, stop: cancel, ended: make(chan struct{})}
	u.jobs[key] = j
	u.loops.Go(func() {
		defer close(j.ended)
		u.run(ctx, topic, group)
	})
}

// leave ends the loop with its last user, and waits for its end.
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
		j.stop()
		<-j.ended
	}
}

func (u *upkeep) close() {
	u.stop()
	u.loops.Wait()
}

const (
	firstMaintenance   = 5 * time.Second // leaves a start undisturbed
	minMaintenance     = 100 * time.Millisecond
	maintenanceTimeout = 30 * time.Second
)

func (u *upkeep) run(ctx context.Context, topic, group string) {
	again := newBackoff()
	for next := firstMaintenance; sleep(ctx, next); {
		start := time.Now()
		var err error
		if next, err = u.maintain(ctx, topic, group); err != nil && ctx.Err() == nil {
			u.engine.tell.failed(observer.Maintain, observer.About{Topic: topic, Group: group}, 0, err)
			next = again.NextBackOff()
			continue
		}
		again.Reset()
		next = max(next, minMaintenance)
		tell(u.engine.tell.later.Maintained,
			observer.Maintained{Topic: topic, Group: group, Took: time.Since(start), Next: next})
	}
}

// maintain makes one call. A driver that panics in it takes nothing with it.
func (u *upkeep) maintain(ctx context.Context, topic, group string) (next time.Duration, err error) {
	defer recovered(&err)
	ctx, cancel := context.WithTimeout(ctx, maintenanceTimeout)
	defer cancel()
	return u.maintainer.Maintain(ctx, topic, group)
}

// sleep waits for d and reports whether ctx is still alive.
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
