package publish

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// This file keeps a write that doesn't return from holding up the calls of others. A write counts
// as silent if it hasn't returned for the duration patience while another call is waiting.
//
//   - A silent write gives its slot back, so that waiting calls can be written beside it.
//   - Its topics become suspect. The calls of a suspect topic wait in a queue of their own. They are
//     written separately from other topics, in probes, so that other calls don't hang with them.
//   - A topic stops being suspect when a write of it returns in time, or when the broker answers.
//
// Probes hold no slot. Each suspect topic has one at a time; the next one starts when the previous
// one is silent. The limits below keep the number of probes small. Once maxSlotless is reached, a
// silent write keeps its slot.
const (
	patience            = 100 * time.Millisecond
	maxSlotlessPerTopic = 2  // per slot: how many silent writes a topic may have before the next one must wait
	maxSlotless         = 16 // per slot: how many silent writes and probes there may be
)

// flights keeps track of the writes under way.
type flights struct {
	under    map[*flight]struct{} // all of them
	slotless int                  // how many writes hold no slot
	slots    int
	suspects map[string]*suspect    // by topic
	fences   map[topicKey]*keyFence // keys of calls whose caller left while they were being written
	watching bool                   // a call of checkSilent is scheduled
}

func newFlights(slots int) flights {
	return flights{
		under: map[*flight]struct{}{}, slots: slots,
		suspects: map[string]*suspect{}, fences: map[topicKey]*keyFence{},
	}
}

// A flight is one write under way.
type flight struct {
	msgs     []*backend.Message
	since    time.Time
	cancel   context.CancelFunc
	queued   bool       // made by a goroutine of the queue
	probes   *suspect   // the topic that it probes; nil if it isn't a probe
	silent   bool       // it has been silent, and gave back its slot unless it is a probe
	suspects []*suspect // its topics, if it is silent or a probe
}

// A suspect is a topic with a silent write. Its calls are written in probes.
type suspect struct {
	topic    string
	marked   bool      // no write of the topic has returned in time since then
	probed   bool      // a probe is under way and not silent
	slotless int       // how many silent writes and probes have messages of the topic
	queue    callQueue // the calls that are waiting for a probe
}

// mayProbe reports whether the waiting calls of s may be written now.
func (fs *flights) mayProbe(s *suspect) bool {
	return !s.probed && s.slotless < maxSlotlessPerTopic*fs.slots && fs.slotless < maxSlotless*fs.slots
}

// watch schedules a call of checkSilent if calls are waiting for a write that may become silent.
func (p *Publisher) watch(now time.Time) {
	if p.watching || !p.waits() {
		return
	}
	var first time.Time
	for f := range p.under {
		if !f.silent && (first.IsZero() || f.since.Before(first)) {
			first = f.since
		}
	}
	if !first.IsZero() {
		p.watching = true
		time.AfterFunc(first.Add(patience).Sub(now), p.checkSilent)
	}
}

// waits reports whether a call is waiting for a slot or a probe.
func (cs *calls) waits() bool {
	if len(cs.queue.calls) > 0 {
		return true
	}
	for _, s := range cs.suspects {
		if len(s.queue.calls) > 0 {
			return true
		}
	}
	return false
}

// checkSilent marks the writes that have become silent, if calls are still waiting.
func (p *Publisher) checkSilent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching = false
	if now := time.Now(); p.waits() && p.done.Err() == nil {
		for f := range p.under {
			if !f.silent && now.Sub(f.since) >= patience {
				p.markSilent(f)
			}
		}
		p.serve()
		p.watch(now)
	}
}

// markSilent records that f is silent.
func (cs *calls) markSilent(f *flight) {
	if f.probes != nil {
		f.silent, f.probes.probed = true, false
		return
	}
	if cs.slotless >= maxSlotless*cs.slots {
		return
	}
	f.silent = true
	cs.slotless++
	cs.free++
	if f.queued {
		cs.serving--
	}
	for _, m := range f.msgs {
		s := cs.suspects[m.Topic]
		if s == nil {
			s = &suspect{topic: m.Topic}
			cs.suspects[m.Topic] = s
		}
		s.marked = true
		if !slices.Contains(f.suspects, s) {
			s.slotless++
			f.suspects = append(f.suspects, s)
		}
	}
	cs.requeue(cs.queue.take())
}

// endFlight ends f, whose write returned err, and reports whether f still has its slot.
func (cs *calls) endFlight(f *flight, err error) (holds bool) {
	delete(cs.under, f)
	apart := f.silent || f.probes != nil
	if apart {
		cs.slotless--
	}
	if len(cs.suspects) == 0 {
		return !apart
	}
	if f.probes != nil && !f.silent {
		f.probes.probed = false
	}
	for i, m := range f.msgs {
		if e := backend.ErrorAt(err, i); answered(e) || !f.silent && !timedOut(e) {
			cs.clear(cs.suspects[m.Topic])
		}
	}
	for _, s := range f.suspects {
		s.slotless--
		cs.forget(s)
	}
	return !apart
}

// answered reports whether err shows that the broker has answered about a message.
func answered(err error) bool {
	return err == nil || !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrUnknownOutcome)
}

// timedOut reports whether err means that a context has ended.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// clear makes the topic of s no longer suspect. If s is nil, it does nothing.
func (cs *calls) clear(s *suspect) {
	if s != nil && s.marked {
		s.marked = false
		cs.requeue(s.queue.take())
		cs.forget(s)
	}
}

func (cs *calls) forget(s *suspect) {
	if !s.marked && s.slotless == 0 {
		delete(cs.suspects, s.topic)
	}
}
