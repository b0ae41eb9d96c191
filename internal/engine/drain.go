package engine

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// lastWait is how long a drain waits for handlers it has cancelled, and for
// what they leave to settle.
const lastWait = time.Second

func (s *Subscription) drain(ctx context.Context) (left Abandoned, err error) {
	s.status.set(observer.Draining, nil)
	s.stopFetch(ErrShutdown)
	for _, h := range s.desk.close() {
		s.giveBackUnrun(h)
	}
	defer s.hurry(ctx)()

	handlers := s.awaitQuiet()
	<-s.fetchEnded
	if handlers == 0 {
		s.workers.Wait() // they settle what they ran
	}
	s.burials.Wait()
	s.delays.Wait()
	s.acks.Wait()
	s.stopKeep()
	s.keepers.Wait()
	unsettled := s.desk.abandon()
	s.counts.abandon(unsettled)
	err = s.attached().source.Close()
	s.engine.upkeep.leave(s.Topic, s.Group)
	s.engine.leave(s)
	s.giveUp(ErrShutdown)
	s.status.set(observer.Closed, nil)
	return Abandoned{Topic: s.Topic, Group: s.Group, Handlers: handlers, Unsettled: unsettled}, err
}

// hurry lets the drain give up soon after ctx is done.
func (s *Subscription) hurry(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		s.desk.interrupt()
		time.AfterFunc(lastWait, func() { s.giveUp(ErrShutdown) })
	})
}

// awaitQuiet waits until no handler runs and the program has settled what it was
// entrusted with, or the drain gives up. It returns how many handlers still run.
func (s *Subscription) awaitQuiet() int {
	select {
	case <-s.desk.quiet:
		return 0
	case <-s.live.Done():
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	return s.desk.working
}

// giveBackUnrun returns what was held and not running when the drain began.
func (s *Subscription) giveBackUnrun(h *Hold) {
	s.desk.mu.Lock()
	resting, due := h.stage == resting, s.time(h.due)
	if h.stage != unstarted && !resting {
		s.desk.mu.Unlock()
		return
	}
	h.stage = returning
	s.desk.mu.Unlock()
	s.delays.Add(sentBack{hold: h, due: due, refund: !resting})
}

// interrupt cancels every run, and what the program was entrusted with.
func (d *desk) interrupt() {
	d.mu.Lock()
	d.interrupted = true
	var cancelled []*Hold
	for _, h := range d.all() {
		if h.working || h.stage == entrusted {
			cancelled = append(cancelled, h)
		}
	}
	d.mu.Unlock()
	for _, h := range cancelled {
		h.ctx.cancel(context.Canceled, ErrShutdown)
	}
}

// abandon forgets what is still held, and returns how much it was beside what
// handlers have.
func (d *desk) abandon() (unsettled int) {
	d.mu.Lock()
	left := d.all()
	for _, h := range left {
		if !h.working {
			unsettled++
		}
		h.lost = true
	}
	freed := d.free(left, ErrShutdown)
	d.mu.Unlock()
	d.sub.Limiter.Release(freed)
	return unsettled
}
