package engine

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// lastWait is how long a drain waits for cancelled handlers and the settlement of events.
const lastWait = time.Second

func (s *Subscription) drain(ctx context.Context) (left Abandoned, err error) {
	s.status.set(observer.Draining, nil)
	s.fetcher.stop(ErrShutdown)
	s.sched.close()
	defer s.hurry(ctx)()

	handlers := s.awaitQuiet()
	<-s.fetcher.ended
	s.settler.wait()
	s.keeper.end()
	s.watcher.end()
	unsettled := s.sched.abandon()
	s.counts.abandoned.Add(int64(unsettled))
	err = s.attachment.Load().close()
	s.engine.leave(s)
	s.giveUp(ErrShutdown)
	s.status.set(observer.Closed, nil)
	return Abandoned{Topic: s.Topic, Group: s.Group, Handlers: handlers, Unsettled: unsettled}, err
}

// hurry cancels the handlers when ctx is done. The drain gives up lastWait later.
func (s *Subscription) hurry(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		s.sched.interrupt()
		time.AfterFunc(lastWait, func() {
			s.giveUp(ErrShutdown)
			s.settler.hurry()
		})
	})
}

// awaitQuiet waits until all workers have ended and, in manual mode, the program has settled
// its deliveries, or until the drain gives up. It returns how many handlers still run.
func (s *Subscription) awaitQuiet() int {
	quiet := make(chan struct{})
	go func() {
		<-s.sched.quiet
		s.runner.workers.Wait() // after its last run, a worker settles the event and calls a hook
		close(quiet)
	}()
	select {
	case <-quiet:
	case <-s.live.Done():
	}
	return s.sched.atWork()
}

func (d *scheduler) atWork() int {
	d.mu.Lock()
	defer d.unlock()
	return d.working
}

// close lets no further Hold start, and gives back the Holds that have not started.
func (d *scheduler) close() {
	d.mu.Lock()
	defer d.unlock()
	d.closed = true
	unrun := &giveBack{}
	for _, h := range d.reads.all() {
		switch h.state {
		case queued, ready:
			unrun.holds = append(unrun.holds, h)
		case resting:
			d.giveBack(&giveBack{holds: []*Hold{h}, due: h.due, counted: h})
		}
	}
	d.giveBack(unrun)
	for _, l := range d.lanes.byKey {
		l.queue = nil
	}
	d.ready, d.resting = line{suspect: d.ready.suspect}, nil
	d.work.Broadcast()
	d.tellQuiet()
}

// interrupt cancels every run, and the context of each Hold in state entrusted.
func (d *scheduler) interrupt() {
	d.mu.Lock()
	defer d.unlock()
	d.interrupted = true
	for _, h := range d.reads.all() {
		if h.working || h.state == entrusted {
			h.ctx.cancel(ErrShutdown)
		}
	}
}

// abandon releases all Holds, and returns how many of them had no running handler.
func (d *scheduler) abandon() (unsettled int) {
	d.mu.Lock()
	defer d.unlock()
	left := d.reads.all()
	for _, h := range left {
		if !h.working {
			unsettled++
		}
		h.lost = true
	}
	d.free(left, ErrShutdown)
	return unsettled
}
