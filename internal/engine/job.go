package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

// A recurringJob runs whenever its timer fires, until end is called. It needs no goroutine while it
// waits, and its runs never overlap. Each run schedules the next one with runIn.
type recurringJob struct {
	ctx   context.Context // done once end was called
	stop  context.CancelFunc
	timer *time.Timer
	turn  chan struct{} // a lock: it holds one value, which a run takes and puts back
}

// newRecurringJob returns a job that first runs f after the duration first.
func newRecurringJob(first time.Duration, f func(*recurringJob)) *recurringJob {
	r := &recurringJob{turn: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.timer = time.AfterFunc(first, func() {
		<-r.turn
		defer func() { r.turn <- struct{}{} }()
		if r.ctx.Err() == nil {
			f(r)
		}
	})
	r.turn <- struct{}{} // only now may a run start, because it uses r.timer
	return r
}

// runIn schedules the next run, and replaces a run that is already scheduled.
func (r *recurringJob) runIn(d time.Duration) { r.timer.Reset(d) }

// end prevents further runs, cancels the context of the current run, and waits for it.
func (r *recurringJob) end() {
	r.stop()
	<-r.turn
	r.timer.Stop()
	r.turn <- struct{}{}
}

const (
	firstMaintenance   = 5 * time.Second // after Subscribe, to keep start-up fast
	minMaintenance     = 100 * time.Millisecond
	partitionCountPoll = partition.PledgeTime
	maintenanceTimeout = 30 * time.Second
)

// A sharedJob is a recurring job that several subscriptions share.
type sharedJob struct {
	*recurringJob
	users int // guarded by Engine.mu
}

// joinTopic records that s has found topic.
func (e *Engine) joinTopic(topic string, s *Subscription) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.startJobs(topic, s)
}

// startJobs starts the jobs for a topic, or counts another user of them. The caller holds mu.
func (e *Engine) startJobs(topic string, s *Subscription) {
	e.maintain(topic, s)
	e.startMover(topic)
}

// startPartitionJobs starts the jobs for the topic whose partitions s reads. The caller holds mu.
func (e *Engine) startPartitionJobs(s *Subscription) {
	if s.Config.Partitions > 0 {
		e.startMover(s.Topic)
	}
	if s.owns() {
		e.maintain(partition.OwnersTopic(s.Topic), s)
	} else if s.Config.Partitions > 0 {
		e.watchPartitionCount(s)
	}
}

// endPartitionJobs undoes startPartitionJobs.
func (e *Engine) endPartitionJobs(s *Subscription) {
	if s.Config.Partitions > 0 {
		e.leaveTopic(s.Topic, s.Group)
	}
	if s.owns() {
		e.leaveTopic(partition.OwnersTopic(s.Topic), s.Group)
	} else if s.Config.Partitions > 0 {
		e.leaveTopic(partition.NumberTopic(s.Topic), s.Group)
	}
}

// watchPartitionCount checks from time to time whether the number of partitions of s's topic has
// changed. If it has, s fails, because it would miss the events of new partitions. Members that
// share partitions watch the number by themselves. The caller holds mu.
func (e *Engine) watchPartitionCount(s *Subscription) {
	p := e.partitions[s.Topic]
	j := &sharedJob{users: 1}
	j.recurringJob = newRecurringJob(partitionCountPoll, func(r *recurringJob) {
		err := p.agree().do(r.ctx)
		if other, ok := errors.AsType[*partition.NumberError](err); ok && other.Next == 0 {
			s.fail(err)
			return
		}
		if errors.Is(err, backend.ErrClosed) {
			return
		}
		r.runIn(partitionCountPoll) // even after other errors, which the member runs into elsewhere
	})
	e.jobs[[2]string{partition.NumberTopic(s.Topic), s.Group}] = j
}

// leaveTopic undoes joinTopic. When the last subscription of a group leaves, it ends the
// maintenance, and when the last one of a topic leaves, the topic's mover. It waits for a run under
// way.
func (e *Engine) leaveTopic(topic, group string) {
	e.mu.Lock()
	key := [2]string{topic, group}
	j, m := e.jobs[key], e.releaseMover(topic)
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

// maintain starts calling the backend's Maintainer, if there is one, for the group of s in topic.
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
	again, first := wait.Broker(), firstMaintenance
	if s.Ephemeral { // otherwise the backend may consider the member dead
		first = min(first, 3*s.Lease)
	}
	e.jobs[key] = &sharedJob{users: 1}
	e.jobs[key].recurringJob = newRecurringJob(first, func(r *recurringJob) {
		start, next := time.Now(), time.Duration(0)
		ctx, cancel := context.WithTimeout(r.ctx, maintenanceTimeout)
		defer cancel()
		err := callDriver("Maintain", func() (err error) { next, err = m.Maintain(ctx, topic, group); return err })
		switch {
		case r.ctx.Err() != nil, errors.Is(err, backend.ErrClosed): // a closed backend never opens again
			return
		case err != nil:
			e.notifier.failed(observer.Maintain, observer.About{Topic: topic, Group: group}, 0, err)
			next = again.Next()
		default:
			again.Reset()
			next = max(next, minMaintenance)
			notify(e.notifier.later.Maintained, observer.Maintained{Topic: topic, Group: group, Took: time.Since(start), Next: next})
		}
		r.runIn(next)
	})
}
