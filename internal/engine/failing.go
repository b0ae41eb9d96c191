package engine

import (
	"container/list"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A Failing describes an event that has failed and is waiting for another attempt.
type Failing struct {
	Topic, ID, Key, Type, Position string
	Attempt, MaxAttempts           int
	Due                            time.Time
	Error, Class                   string
}

// failing remembers the events of a subscription that have failed and are waiting for another
// attempt. It keeps the maxFailing latest failures. The zero value is ready to use.
type failing struct {
	mu         sync.Mutex
	order      list.List                   // of *Failing, the newest failure last
	byPosition map[[2]string]*list.Element // by topic and position
	some       atomic.Bool                 // byPosition has been used
}

const (
	maxFailing     = 10_000 // how many are remembered
	listedFailing  = 100    // how many Failing returns
	maxFailingText = 512    // bytes of Failing.Error
)

// postponed records that the run of h ended with err and that h is redelivered after the given
// time. It reports a Retry or a Snooze to the observer.
func (t *settler) postponed(h *Hold, v verdict, after time.Duration, err error) {
	s, d := t.sub, &h.Delivery
	f := Failing{ // texts are copied, because those of a delivery may keep its whole read in memory
		Topic: t.topic, ID: strings.Clone(d.ID), Key: strings.Clone(d.Key), Type: strings.Clone(typeOf(&d.Message)), Position: strings.Clone(d.Position),
		Attempt: h.Attempt, MaxAttempts: v.most, Due: time.Now().Add(after),
	}
	if v.outcome != observer.Snooze {
		f.Error, f.Class = textOf(err), s.Policy.classOf(err)
		f.Error = strings.Clone(strings.ToValidUTF8(f.Error[:min(len(f.Error), maxFailingText)], ""))
		s.failing.add(&f)
	}
	if v.outcome != observer.Forget {
		notify(s.notifier.later.Retried, observer.Retried{
			About: s.aboutLive(h, h.Run), Outcome: v.outcome, MaxAttempts: v.most, After: after, Err: err, Class: f.Class,
		})
	}
}

func (l *failing) add(f *Failing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(f.place())
	if l.order.Len() >= maxFailing {
		l.remove(l.order.Front().Value.(*Failing).place())
	}
	if l.byPosition == nil {
		l.byPosition = map[[2]string]*list.Element{}
	}
	l.byPosition[f.place()] = l.order.PushBack(f)
	l.some.Store(true)
}

func (f *Failing) place() [2]string { return [2]string{f.Topic, f.Position} }

func (l *failing) remove(place [2]string) {
	if e, ok := l.byPosition[place]; ok {
		l.order.Remove(e)
		delete(l.byPosition, place)
	}
}

// forget removes an acknowledged event of topic.
func (l *failing) forget(topic string, d *backend.Delivery) {
	if !l.some.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove([2]string{topic, d.Position})
}

// settled removes events of topic that were settled in the group, but not by this member.
func (l *failing) settled(topic string, positions []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range positions {
		l.remove([2]string{topic, p})
	}
}

// Failing returns the events that have failed here and are waiting for another attempt: the latest
// failures, newest first, and how many are remembered in total. It leaves out an event that has
// been due for longer than a lease, because another member has it or has had it.
func (s *Subscription) Failing() (newest []Failing, total int) {
	l, now := &s.failing, time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone [][2]string
	for e := l.order.Back(); e != nil; e = e.Prev() {
		f := e.Value.(*Failing)
		if f.Due.Add(s.Lease).Before(now) {
			gone = append(gone, f.place())
			continue
		}
		if total++; total <= listedFailing {
			newest = append(newest, *f)
		}
	}
	for _, p := range gone {
		l.remove(p)
	}
	return newest, total
}
