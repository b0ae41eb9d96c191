package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/batch"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/observer"
)

// A burial is a Hold whose dead letter is to be stored. The verdict is final: only the call
// that stores the letter is repeated, not the run.
type burial struct {
	hold   *Hold
	reason string
	err    error
	class  string           // of err
	began  ledger.Moment    // when the latest run that had ended began; zero: not known
	letter *backend.Message // made for the first call, so that each call stores the same; nil: the event is discarded
	laid   bool             // letter is stored
	key    string           // that the next owner of the partition has to know
	hands  bool             // key is to be stored
	failed bool             // the last call did not store all
	tries  uint8            // failed calls, at most mostTries
	until  ledger.Moment    // when the last call begins, if the event has no lease any more
}

// burials stores dead letters. Its queue makes one call at a time, like the settler's.
type burials struct {
	*feed
	queue *batch.Group[*burial]

	failing int    // burials whose last call has failed; used by the queue only
	nonce   uint64 // tells its dead letters from the letters of other members
}

func newBurials(f *feed, most int) *burials {
	t := &burials{feed: f, nonce: rand.Uint64()}
	t.queue = batch.New(most, batch.AtOnce, t.flush)
	return t
}

// The waits before a dead letter is stored again after a failed call.
const (
	firstBurial = 100 * time.Millisecond
	maxBurial   = time.Second
)

// bury stores a copy of h in the dead-letter topic, and then acknowledges h. Without a
// dead-letter topic it only acknowledges h. The next event of the key does not wait, except
// with FailAll, where the dead letters of a key are stored in order.
func (t *burials) bury(h *Hold, reason string, err error) {
	b := &burial{hold: h, reason: reason, err: err, class: t.sub.Policy.classOf(err)}
	t.sub.book.lock()
	b.began = h.Began() // a run that is stuck may end meanwhile
	b.until = t.sub.book.Now.Plus(t.sub.Lease)
	if t.deadLetter != "" && !t.sub.FailAll {
		t.sub.book.Settled(h)
	}
	t.sub.book.unlock()
	if b.key, b.hands = t.handsOn(h, reason); t.deadLetter == "" && !b.hands {
		t.discarded(b)
		return
	}
	t.queue.Add(b)
}

// discarded acknowledges the event of b, which has no dead letter.
func (t *burials) discarded(b *burial) {
	t.sub.discarded(t.sub.aboutLive(b.hold, b.hold.Run), b.reason, b.err)
	if t.sub.Buried != nil {
		t.tellBuried(t.letterOf(b))
	}
	t.buried(b.hold, b.reason)
}

// tellBuried calls Config.Buried with a dead letter, on the notifier's goroutine.
func (t *burials) tellBuried(dead *backend.Message) {
	s := t.sub
	if s.Buried != nil {
		s.notifier.call("OnDeadLetter", t.about(), func() { s.Buried(dead) })
	}
}

// flush stores the dead letters of a batch and then acknowledges the events. After a
// crash between the two steps, an event may get a second dead letter.
func (t *burials) flush(batch []*burial) {
	live := batch[:0]
	for _, b := range batch {
		if b.tries > 0 && t.isOver(b) {
			t.ends(b)
			t.giveUp(b)
			continue
		}
		live = append(live, b)
	}
	if len(live) == 0 {
		return
	}
	place, err := t.store(live)
	failed := 0
	for _, b := range live {
		t.ends(b)
		if b.failed {
			failed++
			t.notStored(b)
		} else {
			t.stored(b)
		}
	}
	if t.failing == 0 {
		t.sub.status.clear(noLetter, t.feed)
	}
	if failed == 0 {
		return
	}
	about := t.about()
	if len(live) == 1 {
		about = t.sub.aboutHold(live[0].hold, live[0].hold.Run)
	}
	t.sub.notifier.failed(observer.DeadLettering, about, failed, err)
	t.sub.status.trouble(noLetter, t.feed, fmt.Errorf("dead letters cannot be stored in %s: %w", place, err))
}

// ends notes that b waits no more for a call that repeats an earlier one.
func (t *burials) ends(b *burial) {
	if b.tries > 0 {
		t.failing--
	}
}

// A burialPart is a message of a burial: its letter, or its key.
type burialPart struct {
	*burial
	message *backend.Message
}

// store stores the letters and keys of live that are not stored yet. A burial that lacks a part
// afterwards has failed set; place is the topic of the first such part.
func (t *burials) store(live []*burial) (place string, err error) {
	var parts []burialPart
	for _, b := range live {
		b.failed = false
		if b.letter == nil && t.deadLetter != "" {
			b.letter = t.letterOf(b)
		}
		if b.letter != nil && !b.laid {
			parts = append(parts, burialPart{b, b.letter})
		}
		if !b.hands {
			continue
		}
		if m := t.handOn(b.key); m != nil {
			parts = append(parts, burialPart{b, m})
		} else {
			b.hands = false
		}
	}
	if len(parts) == 0 {
		return "", nil
	}
	msgs := make([]*backend.Message, len(parts))
	for i, p := range parts {
		msgs[i] = p.message
	}
	err = t.publish(msgs)
	for i, p := range parts {
		ok := backend.ErrorAt(err, i) == nil
		if !ok && place == "" {
			place = p.message.Topic
		}
		p.failed = p.failed || !ok
		if p.message == p.letter {
			p.laid = ok
		} else {
			t.feed.failed.Stored(p.key, ok)
		}
	}
	return place, err
}

// publish stores msgs. A second after a drain has begun it gives up, because the drain would
// otherwise wait for a topic that cannot be reached.
func (t *burials) publish(msgs []*backend.Message) error {
	ctx, cancel := context.WithCancelCause(t.sub.live)
	defer cancel(nil)
	if t.claim != nil { // because the next owner may handle the event
		var end context.CancelFunc
		ctx, end = context.WithDeadline(ctx, t.claim.Until())
		defer end()
	}
	defer context.AfterFunc(t.sub.ctx, func() { time.AfterFunc(maxBurial, func() { cancel(ErrShutdown) }) })()
	return t.sub.engine.store(ctx, msgs)
}

// stored counts and reports the dead letter of b, and acknowledges the event.
func (t *burials) stored(b *burial) {
	if b.letter == nil {
		t.discarded(b)
		return
	}
	t.sub.counts.deadLettered.Add(1)
	about := t.sub.aboutHold(b.hold, b.hold.Run)
	about.Type = typeOf(b.letter) // the lease may have been lost meanwhile
	tell(t.sub.notifier.later.DeadLettered, observer.DeadLettered{
		About: about, DeadLetter: t.deadLetter, Reason: b.reason, Err: b.err, Class: b.class,
	})
	t.tellBuried(b.letter)
	t.buried(b.hold, b.reason)
}

// notStored plans another call to store the dead letter of b. If a drain has begun, the event
// is given back, because the drain would otherwise wait for the dead-letter topic.
func (t *burials) notStored(b *burial) {
	switch {
	case t.sub.live.Err() != nil: // the event stays held, so that the drain counts it
	case t.sub.ctx.Err() != nil && b.hold.Leaseless():
		t.giveUp(b)
	case t.sub.ctx.Err() != nil:
		b.hold.Letter = nil
		t.settler.retry(b.hold, verdict{outcome: observer.Return, after: maxBurial}, b.err)
	default:
		wait := min(firstBurial<<b.tries, maxBurial)
		b.tries = min(b.tries+1, mostTries)
		t.failing++
		s := t.sub
		s.book.lock()
		b.hold.Letter = b
		at := time.Duration(s.book.Now.Plus(wait)).Truncate(firstBurial) + firstBurial // a moment that burials share
		s.book.Repeat(b.hold, moment(at))
		s.book.unlock()
	}
}

// giveUp releases the event of b, whose dead letter is not stored. It comes again, unless it
// was acknowledged before its run: then it is discarded.
func (t *burials) giveUp(b *burial) {
	h := b.hold
	if h.Leaseless() {
		t.sub.discarded(t.sub.aboutLive(h, h.Run), b.reason, b.err)
		h.Letter = nil
		t.settler.ack(h)
	} else {
		t.sub.tellLost(h, h.Run, false, nil)
		t.sub.book.lock()
		t.sub.book.Release(h, errLeaseLost(nil))
		t.sub.book.unlock()
	}
	if t.failing == 0 {
		t.sub.status.clear(noLetter, t.feed)
	}
}

// buried acknowledges h after its dead letter was stored, or discarded. With FailAll, later
// events with the key of h then become dead letters too.
func (t *burials) buried(h *Hold, reason string) {
	if t.sub.FailAll && reason != ReasonKeyFailed { // ReleaseKey may have been called since
		t.sub.book.lock()
		t.sub.book.FailKey(h)
		t.sub.book.unlock()
	}
	h.Letter = nil
	t.settler.ackUnhandled(h)
}

// isOver reports whether the time in which the dead letter of b may be stored has ended.
func (t *burials) isOver(b *burial) bool {
	t.sub.book.lock()
	defer t.sub.book.unlock()
	if b.hold.Leaseless() {
		return b.until <= t.sub.book.Now
	}
	return b.hold.Lost()
}
