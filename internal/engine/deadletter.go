package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/batch"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

// deadLetterOf creates the dead letter of b.
func (t *deadLetterQueue) deadLetterOf(b *pendingDeadLetter) *backend.Message {
	last := time.Now() // minus the age of the run, because the wall clock may have been changed
	if b.began != 0 {
		last = last.Add(-time.Duration(t.sub.instant(last) - b.began))
	}
	f := letter.Failure{
		Reason: b.reason, Error: textOf(b.err), Class: b.class, Attempts: b.hold.Attempt, Topic: t.topic, Group: t.sub.Group, Last: last,
	}
	if p, ok := errors.AsType[*observer.PanicError](b.err); ok {
		f.Stack = string(p.Stack)
	}
	m := letter.Of(&b.hold.Delivery.Message, &f)
	m.Topic, m.ID, m.Once = t.deadLetter, t.deadLetterID(b.hold), t.sub.engine.limits.OnceWindow > 0
	letter.Shorten(m, t.sub.engine.limits.Payload)
	return m
}

// deadLetterID returns the ID of the dead letter of h. Repeated calls to store it use the same ID,
// so the backend can store it only once. The ID is different for each receipt and attempt.
// Otherwise the backend would take a second dead letter of the event for a duplicate of the first
// one, which may be gone by then.
func (t *deadLetterQueue) deadLetterID(h *Hold) string {
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, t.nonce, h.Arrived(), h.Attempt) // never fails
	return fmt.Sprintf("%s/%s/%s/%016x", t.sub.Group, t.topic, h.Delivery.Position, hash.Sum64())
}

// textOf returns err.Error(), or a text about the panic if Error panics; err may be a type of the
// program.
func textOf(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("%T, whose Error panics: %v", err, v)
		}
	}()
	return err.Error()
}

// classOf returns p.Class(err), or ErrorClass(err) if p.Class is nil, panics or ends its goroutine.
// It runs p.Class on a separate goroutine because of the last case.
func (p Policy) classOf(err error) (name string) {
	if p.Class == nil {
		return ErrorClass(err)
	}
	ok := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		ok = guarded(func() error { name = p.Class(err); return nil }) == nil
	}()
	<-done
	if !ok {
		return ErrorClass(err)
	}
	return name
}

// A pendingDeadLetter is a Hold whose dead letter is still to be stored. The verdict is final: only
// the call that stores the dead letter is repeated, never the run.
type pendingDeadLetter struct {
	hold      *Hold
	reason    string
	err       error
	class     string           // of err
	began     ledger.Instant   // when the latest finished run started; zero if unknown
	copy      *backend.Message // the dead letter, created once so that every call stores the same one; nil if the event is discarded
	isStored  bool             // copy is stored
	key       string           // the failed key that the next owner of the partition must learn of
	passesKey bool             // key is still to be stored
	failed    bool             // the last call didn't store everything
	tries     uint8            // failed calls, at most mostTries
	until     ledger.Instant   // when the last call may start, if the event no longer has a lease
}

// A deadLetterQueue stores dead letters. It makes one call at a time, like the queues of the
// settler.
type deadLetterQueue struct {
	*consumer
	queue *batch.Group[*pendingDeadLetter]

	failing int    // how many dead letters are waiting after a failed call; used by the queue only
	nonce   uint64 // distinguishes the IDs of its dead letters from those of other members
}

func newDeadLetterQueue(c *consumer, most int) *deadLetterQueue {
	t := &deadLetterQueue{consumer: c, nonce: rand.Uint64()}
	t.queue = batch.New(most, batch.AtOnce, t.flush)
	return t
}

// Bounds of the delay before another call to store a dead letter.
const (
	firstDeadLetterRetry = 100 * time.Millisecond
	maxDeadLetterRetry   = time.Second
)

// bury stores a copy of h in the dead-letter topic and then acknowledges h. Without a dead-letter
// topic, it only acknowledges h. The next event with the key doesn't wait for this, except with
// FailAll, where the dead letters of a key are stored in order.
func (t *deadLetterQueue) bury(h *Hold, reason string, err error) {
	b := &pendingDeadLetter{hold: h, reason: reason, err: err, class: t.sub.Policy.classOf(err)}
	t.sub.ledger.lock()
	b.began = h.Began() // now, because a stuck run may end at any time
	b.until = t.sub.ledger.Now.Plus(t.sub.Lease)
	if t.deadLetter != "" && !t.sub.FailAll {
		t.sub.ledger.Settled(h)
	}
	t.sub.ledger.unlock()
	if b.key, b.passesKey = t.keyToPass(h, reason); t.deadLetter == "" && !b.passesKey {
		t.discarded(b)
		return
	}
	t.queue.Add(b)
}

// discarded acknowledges the event of b without storing a dead letter.
func (t *deadLetterQueue) discarded(b *pendingDeadLetter) {
	t.sub.discarded(t.sub.aboutLive(b.hold, b.hold.Run), b.reason, b.err)
	if t.sub.Buried != nil {
		t.notifyBuried(t.deadLetterOf(b))
	}
	t.buried(b.hold, b.reason)
}

// notifyBuried calls Config.Buried with a dead letter, on the notifier's goroutine.
func (t *deadLetterQueue) notifyBuried(dead *backend.Message) {
	s := t.sub
	if s.Buried != nil {
		s.notifier.call("OnDeadLetter", t.about(), func() { s.Buried(dead) })
	}
}

// flush stores the dead letters of a batch and then acknowledges the events. A crash between the
// two steps may leave an event with a second dead letter.
func (t *deadLetterQueue) flush(batch []*pendingDeadLetter) {
	live := batch[:0]
	for _, b := range batch {
		if b.tries > 0 && t.isOver(b) {
			t.endRetry(b)
			t.giveUp(b)
			continue
		}
		live = append(live, b)
	}
	if len(live) == 0 {
		return
	}
	topic, err := t.store(live)
	failed := 0
	for _, b := range live {
		t.endRetry(b)
		if b.failed {
			failed++
			t.notStored(b)
		} else {
			t.stored(b)
		}
	}
	if t.failing == 0 {
		t.sub.status.clear(noDeadLetter, t.consumer)
	}
	if failed == 0 {
		return
	}
	about := t.about()
	if len(live) == 1 {
		about = t.sub.aboutHold(live[0].hold, live[0].hold.Run)
	}
	t.sub.notifier.failed(observer.DeadLettering, about, failed, err)
	t.sub.status.trouble(noDeadLetter, t.consumer, fmt.Errorf("dead letters cannot be stored in %s: %w", topic, err))
}

// endRetry records that b is no longer waiting for a repeated call.
func (t *deadLetterQueue) endRetry(b *pendingDeadLetter) {
	if b.tries > 0 {
		t.failing--
	}
}

// A deadLetterPart is a message to be stored for b: its dead letter or its failed key.
type deadLetterPart struct {
	*pendingDeadLetter
	message *backend.Message
}

// store stores the dead letters and keys of live that are not stored yet. It sets failed on those
// that could not be stored, and returns the topic of the first of them.
func (t *deadLetterQueue) store(live []*pendingDeadLetter) (topic string, err error) {
	var parts []deadLetterPart
	for _, b := range live {
		b.failed = false
		if b.copy == nil && t.deadLetter != "" {
			b.copy = t.deadLetterOf(b)
		}
		if b.copy != nil && !b.isStored {
			parts = append(parts, deadLetterPart{b, b.copy})
		}
		if !b.passesKey {
			continue
		}
		if m := t.keyMessage(b.key); m != nil {
			parts = append(parts, deadLetterPart{b, m})
		} else {
			b.passesKey = false
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
		if !ok && topic == "" {
			topic = p.message.Topic
		}
		p.failed = p.failed || !ok
		if p.message == p.copy {
			p.isStored = ok
		} else {
			t.consumer.failed.Stored(p.key, ok)
		}
	}
	return topic, err
}

// publish stores msgs. During a drain it gives up after a second, so that the drain doesn't wait
// for a topic that can't be reached.
func (t *deadLetterQueue) publish(msgs []*backend.Message) error {
	ctx, cancel := context.WithCancelCause(t.sub.live)
	defer cancel(nil)
	if t.claim != nil { // because the next owner may handle the event
		var end context.CancelFunc
		ctx, end = context.WithDeadline(ctx, t.claim.Until())
		defer end()
	}
	defer context.AfterFunc(t.sub.ctx, func() { time.AfterFunc(maxDeadLetterRetry, func() { cancel(ErrShutdown) }) })()
	return t.sub.engine.store(ctx, msgs)
}

// stored counts and reports the dead letter of b, and acknowledges the event.
func (t *deadLetterQueue) stored(b *pendingDeadLetter) {
	if b.copy == nil {
		t.discarded(b)
		return
	}
	t.sub.counts.deadLettered.Add(1)
	about := t.sub.aboutHold(b.hold, b.hold.Run)
	about.Type = typeOf(b.copy) // not from the Hold, whose lease may have been lost
	notify(t.sub.notifier.later.DeadLettered, observer.DeadLettered{
		About: about, DeadLetter: t.deadLetter, Reason: b.reason, Err: b.err, Class: b.class,
	})
	t.notifyBuried(b.copy)
	t.buried(b.hold, b.reason)
}

// notStored schedules another call to store the dead letter of b. If a drain has begun, it gives
// the event back instead, so that the drain doesn't wait for the dead-letter topic.
func (t *deadLetterQueue) notStored(b *pendingDeadLetter) {
	switch {
	case t.sub.live.Err() != nil: // the event stays held, so that the drain counts it
	case t.sub.ctx.Err() != nil && b.hold.Leaseless():
		t.giveUp(b)
	case t.sub.ctx.Err() != nil:
		b.hold.DeadLetter = nil
		t.settler.retry(b.hold, verdict{outcome: observer.Return, after: maxDeadLetterRetry}, b.err)
	default:
		delay := wait.Doubled(firstDeadLetterRetry, maxDeadLetterRetry, int(b.tries))
		b.tries = min(b.tries+1, mostTries)
		t.failing++
		s := t.sub
		s.ledger.lock()
		b.hold.DeadLetter = b
		at := time.Duration(s.ledger.Now.Plus(delay)).Truncate(firstDeadLetterRetry) + firstDeadLetterRetry // rounded, so that dead letters share a call
		s.ledger.Repeat(b.hold, instant(at))
		s.ledger.unlock()
	}
}

// giveUp releases the event of b without storing its dead letter. The event is redelivered, unless
// it was acknowledged before its run, in which case it is discarded.
func (t *deadLetterQueue) giveUp(b *pendingDeadLetter) {
	h := b.hold
	if h.Leaseless() {
		t.sub.discarded(t.sub.aboutLive(h, h.Run), b.reason, b.err)
		h.DeadLetter = nil
		t.settler.ack(h)
	} else {
		t.sub.notifyLost(h, h.Run, false, nil)
		t.sub.ledger.lock()
		t.sub.ledger.Release(h, errLeaseLost(nil))
		t.sub.ledger.unlock()
	}
	if t.failing == 0 {
		t.sub.status.clear(noDeadLetter, t.consumer)
	}
}

// buried acknowledges h after its dead letter was stored or discarded. With FailAll, later events
// with the key of h then become dead letters, too.
func (t *deadLetterQueue) buried(h *Hold, reason string) {
	if t.sub.FailAll && reason != ReasonKeyFailed { // otherwise ReleaseKey may have been called since
		t.sub.ledger.lock()
		t.sub.ledger.FailKey(h)
		t.sub.ledger.unlock()
	}
	h.DeadLetter = nil
	t.settler.ackUnhandled(h)
}

// isOver reports whether it is too late to store the dead letter of b.
func (t *deadLetterQueue) isOver(b *pendingDeadLetter) bool {
	t.sub.ledger.lock()
	defer t.sub.ledger.unlock()
	if b.hold.Leaseless() {
		return b.until <= t.sub.ledger.Now
	}
	return b.hold.Lost()
}
