package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/observer"
)

const (
	firstMaintenance   = 5 * time.Second // after Subscribe, to keep the start fast
	minMaintenance     = 100 * time.Millisecond
	lookForNumber      = partition.PledgeTime
	maintenanceTimeout = 30 * time.Second
)

// A job is a recurring job that several subscriptions share.
type job struct {
	*recurring
	users int // guarded by Engine.mu
}

// joinTopic notes that s has found topic.
func (e *Engine) joinTopic(topic string, s *Subscription) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold(topic, s)
}

// hold starts the jobs for a topic, or counts another user of them. The caller holds mu.
func (e *Engine) hold(topic string, s *Subscription) {
	e.maintain(topic, s)
	e.move(topic)
}

// holdWhole starts the jobs for the topic whose partitions s reads. The caller holds mu.
func (e *Engine) holdWhole(s *Subscription) {
	if s.Config.Partitions > 0 {
		e.move(s.Topic)
	}
	if s.owns() {
		e.maintain(partition.OwnersTopic(s.Topic), s)
	} else if s.Config.Partitions > 0 {
		e.heed(s)
	}
}

// leaveWhole undoes holdWhole.
func (e *Engine) leaveWhole(s *Subscription) {
	if s.Config.Partitions > 0 {
		e.leaveTopic(s.Topic, s.Group)
	}
	if s.owns() {
		e.leaveTopic(partition.OwnersTopic(s.Topic), s.Group)
	} else if s.Config.Partitions > 0 {
		e.leaveTopic(partition.NumberTopic(s.Topic), s.Group)
	}
}

// heed starts to look whether the number of partitions of the topic of s has changed. Then s fails,
// because it would miss the events of new partitions. Members that share partitions look by themselves.
// The caller holds mu.
func (e *Engine) heed(s *Subscription) {
	p := e.partitions[s.Topic]
	j := &job{users: 1}
	j.recurring = recur(lookForNumber, func(r *recurring) {
		err := p.agree().do(r.ctx)
		if other, ok := errors.AsType[*partition.NumberError](err); ok && other.Next == 0 {
			s.fail(err)
			return
		}
		r.in(lookForNumber) // after other errors too: the member meets them itself
	})
	e.jobs[[2]string{partition.NumberTopic(s.Topic), s.Group}] = j
}

// leaveTopic undoes joinTopic. After the last subscription of a group it ends the maintenance,
// and after the last one of a topic its mover. It waits for a run under way.
func (e *Engine) leaveTopic(topic, group string) {
	e.mu.Lock()
	key := [2]string{topic, group}
	j, m := e.jobs[key], e.unmove(topic)
	if j != nil {
		if j.users--; j.users > 0 {
			j = nil
		} else {
			delete(e.jobs, key)
		}
	}
	e.mu.Unlock()
	if j != nil {
		j.end()
	}
	if m != nil {
		m.end()
	}
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
