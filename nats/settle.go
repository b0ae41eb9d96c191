package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/seed41896749/eventbus/backend"
)

var (
	ackBody      = []byte("+ACK")
	nakBody      = []byte("-NAK")
	progressBody = []byte("+WPI")
)

// A settling is a kind of call: Ack, Delay or Extend.
type settling struct {
	op        string
	confirmed bool // the server answers every word; if not set, only the last one
	fenced    bool // a word is not sent unless the lease is certainly held

	// before is called for each word that will be sent, unless it is nil.
	before func(r *receipt, w told)

	// said is called for each word that was to be sent.
	said func(r *receipt, w told, o outcome)
}

// An outcome says whether the server has received a word.
type outcome int

const (
	failed outcome = iota
	uncertain
	done
)

// A told is a word to the server about a delivery.
type told struct {
	delivery *backend.Delivery
	word     []byte        // +ACK, -NAK, or +WPI (in progress)
	wait     time.Duration // of a NAK: time until the message is due
}

// same returns the same word about each delivery.
func same(word []byte, ds []*backend.Delivery) []told {
	all := make([]told, len(ds))
	for i, d := range ds {
		all[i] = told{delivery: d, word: word}
	}
	return all
}

// Ack implements [backend.Source]. It sends an acknowledgement of each delivery and waits
// for the answer to the last one. With Config.ConfirmAcks it waits for every answer. The
// server accepts an acknowledgement even after the lease has expired.
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.settle(ctx, same(ackBody, ds), settling{op: "ack", confirmed: s.config.ConfirmAcks, said: func(r *receipt, _ told, o outcome) {
		switch o {
		case done:
			r.source.tally.settle(r)
		case uncertain:
			r.vague.Store(true) // the lease goes on, because the message may still be pending
		}
	}})
}

// Delay implements [backend.Delayer]. If the outcome of a Delay is unknown, it may be
// repeated. A repetition succeeds if it is sent before the message may be due, or if the
// message has come again, or if the member is alone and has recalled the message.
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	called := time.Now()
	for i := range ds {
		if r, ok := ds[i].Token.(*receipt); ok && r.isOpen() {
			if err := (recovery{r.source}).clear(ctx); err != nil {
				return s.failure("delay", err)
			}
		}
	}
	if slices.ContainsFunc(ds, func(d backend.Delayed) bool { return d.For > 0 }) { // a NAK without a delay does not set the timer
		sleep(ctx, s.ended, s.backend.pacer.turn(s.config.Topic, s.config.Group))
	}
	waited := time.Since(called)
	all := make([]told, len(ds))
	for i := range ds {
		all[i] = told{delivery: &ds[i].Delivery, word: nakBody}
		if ds[i].For > 0 {
			// The delay is at least 1 ms, because the server redelivers messages without a
			// delay first. They would overtake earlier messages of the same key that are
			// due by the timer.
			all[i].wait = max(ds[i].For-waited, time.Millisecond)
			body := append(make([]byte, 0, 40), `-NAK {"delay":`...)
			all[i].word = append(strconv.AppendInt(body, int64(all[i].wait), 10), '}')
		}
	}
	return s.settle(ctx, all, settling{
		op: "delay", fenced: true,
		before: func(r *receipt, w told) { r.source.tally.delay(r, leases.now()+int64(w.wait)) },
		said: func(r *receipt, w told, o outcome) {
			r.source.tally.delayedUntil(r, leases.now()+int64(w.wait), o)
		},
	})
}

// Extend implements [backend.Extender].
func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	began := leases.now()
	return s.settle(ctx, same(progressBody, ds), settling{op: "extend", fenced: true, said: func(r *receipt, _ told, o outcome) {
		if o == done {
			r.extend(began + int64(s.config.Lease))
		}
	}})
}

func (s *source) settle(ctx context.Context, all []told, c settling) error {
	if err := s.unusable(); err != nil {
		return s.failure(c.op, err)
	}
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := s.backend.requester(ctx)
	if err != nil {
		return s.failure(c.op, err)
	}
	defer s.backend.requesters.Put(r)
	errs := make([]error, 0, len(all))
	for some := range slices.Chunk(all, requestRoom) {
		errs = append(errs, s.tell(ctx, r, some, c)...)
	}
	for i, err := range errs {
		errs[i] = s.failure(c.op, err)
	}
	return backend.AsBatchError(errs)
}

// tell sends words and returns the error of each. The server handles words in order, so the
// answer to the last word is also the result of earlier words without an answer.
func (s *source) tell(ctx context.Context, r *requester, all []told, c settling) []error {
	errs, receipts := make([]error, len(all)), make([]*receipt, len(all))
	r.begin(len(all))
	defer r.end()
	r.mem.Expect(0, 0, len(all)*r.replyLen())
	final := -1 // the last word
	for i, t := range all {
		if receipts[i], errs[i] = s.receipt(c, t.delivery); errs[i] != nil {
			receipts[i] = nil
			continue
		}
		if c.before != nil {
			c.before(receipts[i], t)
		}
		if r.out[i] = (outgoing{subject: receipts[i].reply, data: t.word}); c.confirmed {
			r.await(i)
		}
		final = i
	}
	if final >= 0 && !c.confirmed {
		r.await(final)
	}
	var last, fate error // the newest result, and why nobody serves the consumer
	r.exchange(ctx, conversation{
		got: func(i int, m *natsgo.Msg, err error) {
			if m != nil && isUnserved(m) {
				if fate == nil {
					fate = s.fate(ctx, time.Now(), unserved)
				}
				err = fate
			}
			last = classOf(ctx, err, true)
			if errs[i] = last; m == nil && errors.Is(err, backend.ErrUnavailable) {
				last = classOf(ctx, errConnectionLost, true) // earlier words may have been sent
			}
		},
		why: func() { s.askWhy(ctx, r, receipts, errs, c) },
	})
	for i, receipt := range receipts {
		if errs[i] == nil && !c.confirmed {
			if errs[i] = last; errors.Is(last, errForgotten) {
				errs[i] = receipt.forgotten()
			}
		}
	}
	for i, receipt := range receipts {
		if receipt != nil {
			c.tell(receipt, all[i], errs[i])
		} else if errs[i] == errReturned { //nolint:errorlint // a marker, never wrapped
			errs[i] = nil
		}
	}
	return errs
}

// tell records the result of a word that was to be sent.
func (c *settling) tell(r *receipt, w told, err error) {
	switch {
	case err == nil:
		c.said(r, w, done)
	case errors.Is(err, backend.ErrUnknownOutcome):
		c.said(r, w, uncertain)
	default:
		c.said(r, w, failed)
		if errors.Is(err, backend.ErrLeaseLost) {
			r.source.tally.settle(r)
		}
	}
}

// errReturned means that a Delay need not be sent, because an earlier one was done.
var errReturned = errors.New("the message was given back before")

// receipt returns the receipt of a delivery. After an error the word must not be sent.
func (s *source) receipt(c settling, d *backend.Delivery) (*receipt, error) {
	r, ok := d.Token.(*receipt)
	if !ok || r.source.place.topic != s.place.topic || r.source.place.stream != s.place.stream || r.source.config.Group != s.config.Group {
		return nil, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
	}
	isDelay := c.before != nil
	err := r.forgotten()
	switch {
	case isDelay && r.until.Load() == returned:
		return r, errReturned
	case isDelay && r.vague.Load():
		return r, backend.ErrLeaseLost // the message may still be pending
	case isDelay && !r.delayable(), c.fenced && !isDelay && !r.held(), c.fenced && r.source.taken.took(r):
		err = backend.ErrLeaseLost
	}
	if err != nil {
		s.tally.settle(r)
	}
	return r, err
}

// askWhy asks the server which of the unanswered deliveries it has forgotten. It sends the
// words about the other deliveries again. The server may have ignored such a word, because
// it had forgotten the delivery, and redelivered the message only later. Fenced words are
// not sent again, because the delivery may have another holder by now.
func (s *source) askWhy(ctx context.Context, r *requester, receipts []*receipt, errs []error, c settling) {
	var asked *source
	for i, waits := range r.waits {
		if waits && receipts[i].source != asked {
			asked = receipts[i].source
			_, _ = asked.recollect(ctx) // without an answer nothing is known to be forgotten
		}
	}
	if !c.fenced {
		r.again(func(i int) bool {
			return errs[i] == nil && (r.waits[i] || !c.confirmed) && receipts[i].forgotten() == nil
		})
	}
	for i, waits := range r.waits {
		if waits {
			if err := receipts[i].forgotten(); err != nil {
				r.fail(i, err)
			}
		}
	}
}

// A consumer redelivers due messages by a timer, and each NAK with a delay sets this timer to
// 10 ms. So it redelivers only after 10 ms without such a NAK. With one Delay call in 200 ms
// of up to 20 processes, there is such a pause in each 200 ms.
//
// So a group in one process has one Delay call in each delayPause. But calls that have not
// been used can be made later, up to delayCredit at once, with a delayGap between them. An
// event that fails a few times is then redelivered after its own short delays.
const (
	delayPause  = 200 * time.Millisecond
	delayCredit = 4
	delayGap    = 15 * time.Millisecond
)

// A pace says when the next Delay call of a group in this process may be sent.
type pace struct {
	last time.Time // of the last call
	used time.Time // until then, calls with a delayPause between them are used up
}

// next returns the time of a call that is ready now, and the pace after it.
func (p pace) next(now time.Time) (turn time.Time, after pace) {
	turn = now
	for _, earliest := range []time.Time{p.last.Add(delayGap), p.used.Add(-delayCredit * delayPause)} {
		if turn.Before(earliest) {
			turn = earliest
		}
	}
	after = pace{last: turn, used: p.used}
	if after.used.Before(turn) {
		after.used = turn
	}
	after.used = after.used.Add(delayPause)
	return turn, after
}

// A pacer has the paces of the groups of a backend.
type pacer struct {
	mu    sync.Mutex
	paces map[string]pace // by topic and group
}

// forget removes the pace of a group.
func (p *pacer) forget(topic, group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.paces, topic+"/"+group)
}

// turn returns how long the next Delay call for a group must wait.
func (p *pacer) turn(topic, group string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, key := time.Now(), topic+"/"+group
	turn, after := p.paces[key].next(now)
	if p.paces == nil {
		p.paces = map[string]pace{}
	}
	p.paces[key] = after
	return turn.Sub(now)
}
