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
type settleCall struct {
	op        string
	confirmed bool // the server answers every word; if not set, only the last one
	fenced    bool // a word is not sent unless the lease is certainly held

	// before is called for each word that will be sent, unless it is nil.
	before func(tok *token, msg ackMessage)

	// said is called for each word that was to be sent.
	after func(tok *token, msg ackMessage, o outcome)
}

// An outcome says whether the server has received a word.
type outcome int

const (
	outcomeFailed outcome = iota
	outcomeUncertain
	outcomeDone
)

// A told is a word to the server about a delivery.
type ackMessage struct {
	delivery *backend.Delivery
	body     []byte        // +ACK, -NAK, or +WPI (in progress)
	delay    time.Duration // of a NAK: time until the message is due
}

// same returns the same word about each delivery.
func sameBody(word []byte, ds []*backend.Delivery) []ackMessage {
	all := make([]ackMessage, len(ds))
	for i, d := range ds {
		all[i] = ackMessage{delivery: d, body: word}
	}
	return all
}

// Ack implements [backend.Source]. It sends an acknowledgement of each delivery and waits
// for the answer to the last one. With Config.ConfirmAcks it waits for every answer. The
// server accepts an acknowledgement even after the lease has expired.
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.settle(ctx, sameBody(ackBody, ds), settleCall{op: "ack", confirmed: s.config.ConfirmAcks, after: func(tok *token, _ ackMessage, o outcome) {
		switch o {
		case outcomeDone:
			tok.source.tracker.settled(tok)
		case outcomeUncertain:
			tok.ackUncertain.Store(true) // the lease goes on, because the message may still be pending
		}
	}})
}

// Delay implements [backend.Delayer]. If the outcome of a Delay is unknown, it may be
// repeated. A repetition succeeds if it is sent before the message may be due, or if the
// message has come again, or if the member is alone and has recalled the message.
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	called := time.Now()
	for i := range ds {
		if tok, ok := ds[i].Token.(*token); ok && tok.mayBeRedelivered() {
			if err := tok.source.resolveDelays(ctx); err != nil {
				return s.failure("delay", err)
			}
		}
	}
	if slices.ContainsFunc(ds, func(d backend.Delayed) bool { return d.For > 0 }) { // a NAK without a delay does not set the timer
		sleep(ctx, s.ended, s.backend.delayLimiter.reserve(s.config.Topic, s.config.Group))
	}
	waited := time.Since(called)
	all := make([]ackMessage, len(ds))
	for i := range ds {
		all[i] = ackMessage{delivery: &ds[i].Delivery, body: nakBody}
		if ds[i].For > 0 {
			// The delay is at least 1 ms, because the server redelivers messages without a
			// delay first. They would overtake earlier messages of the same key that are
			// due by the timer.
			all[i].delay = max(ds[i].For-waited, time.Millisecond)
			body := append(make([]byte, 0, 40), `-NAK {"delay":`...)
			all[i].body = append(strconv.AppendInt(body, int64(all[i].delay), 10), '}')
		}
	}
	return s.settle(ctx, all, settleCall{
		op: "delay", fenced: true,
		before: func(tok *token, msg ackMessage) {
			tok.source.tracker.startDelay(tok, leaseClock.now()+int64(msg.delay))
		},
		after: func(tok *token, msg ackMessage, o outcome) {
			tok.source.tracker.endDelay(tok, leaseClock.now()+int64(msg.delay), o)
		},
	})
}

// Extend implements [backend.Extender].
func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	began := leaseClock.now()
	return s.settle(ctx, sameBody(progressBody, ds), settleCall{op: "extend", fenced: true, after: func(tok *token, _ ackMessage, o outcome) {
		if o == outcomeDone {
			tok.extend(began + int64(s.config.Lease))
		}
	}})
}

func (s *source) settle(ctx context.Context, all []ackMessage, c settleCall) error {
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
	for some := range slices.Chunk(all, maxRequests) {
		errs = append(errs, s.sendAcks(ctx, r, some, c)...)
	}
	for i, err := range errs {
		errs[i] = s.failure(c.op, err)
	}
	return backend.AsBatchError(errs)
}

// tell sends words and returns the error of each. The server handles words in order, so the
// answer to the last word is also the result of earlier words without an answer.
func (s *source) sendAcks(ctx context.Context, r *requester, all []ackMessage, c settleCall) []error {
	errs, tokens := make([]error, len(all)), make([]*token, len(all))
	r.begin(len(all))
	defer r.end()
	r.mem.Expect(0, 0, len(all)*r.replyLen())
	final := -1 // the last word
	for i, msg := range all {
		if tokens[i], errs[i] = s.sendable(c, msg.delivery); errs[i] != nil {
			tokens[i] = nil
			continue
		}
		if c.before != nil {
			c.before(tokens[i], msg)
		}
		if r.out[i] = (outgoing{subject: tokens[i].reply, data: msg.body}); c.confirmed {
			r.await(i)
		}
		final = i
	}
	if final >= 0 && !c.confirmed {
		r.await(final)
	}
	var last, fate error // the newest result, and why nobody serves the consumer
	r.exchange(ctx, callOptions{
		onAnswer: func(i int, m *natsgo.Msg, err error) {
			if m != nil && isUnserved(m) {
				if fate == nil {
					fate = s.diagnose(ctx, time.Now(), unservedText)
				}
				err = fate
			}
			last = classOf(ctx, err, true)
			if errs[i] = last; m == nil && errors.Is(err, backend.ErrUnavailable) {
				last = classOf(ctx, errConnectionLost, true) // earlier words may have been sent
			}
		},
		onSilence: func() { s.checkUnanswered(ctx, r, tokens, errs, c) },
	})
	for i, tok := range tokens {
		if errs[i] == nil && !c.confirmed {
			if errs[i] = last; errors.Is(last, errForgotten) {
				errs[i] = tok.forgotten()
			}
		}
	}
	for i, tok := range tokens {
		if tok != nil {
			c.record(tok, all[i], errs[i])
		} else if errs[i] == errGivenBack { //nolint:errorlint // a marker, never wrapped
			errs[i] = nil
		}
	}
	return errs
}

// tell records the result of a word that was to be sent.
func (c *settleCall) record(tok *token, msg ackMessage, err error) {
	switch {
	case err == nil:
		c.after(tok, msg, outcomeDone)
	case errors.Is(err, backend.ErrUnknownOutcome):
		c.after(tok, msg, outcomeUncertain)
	default:
		c.after(tok, msg, outcomeFailed)
		if errors.Is(err, backend.ErrLeaseLost) {
			tok.source.tracker.settled(tok)
		}
	}
}

// errReturned means that a Delay need not be sent, because an earlier one was done.
var errGivenBack = errors.New("the message was given back before")

// receipt returns the receipt of a delivery. After an error the word must not be sent.
func (s *source) sendable(c settleCall, d *backend.Delivery) (*token, error) {
	tok, ok := d.Token.(*token)
	if !ok || tok.source.loc.topic != s.loc.topic || tok.source.loc.stream != s.loc.stream || tok.source.config.Group != s.config.Group {
		return nil, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
	}
	isDelay := c.before != nil
	err := tok.forgotten()
	switch {
	case isDelay && tok.until.Load() == untilGivenBack:
		return tok, errGivenBack
	case isDelay && tok.ackUncertain.Load():
		return tok, backend.ErrLeaseLost // the message may still be pending
	case isDelay && !tok.delayable(), c.fenced && !isDelay && !tok.held(), c.fenced && tok.source.settledByOperators.includes(tok):
		err = backend.ErrLeaseLost
	}
	if err != nil {
		s.tracker.settled(tok)
	}
	return tok, err
}

// askWhy asks the server which of the unanswered deliveries it has forgotten. It sends the
// words about the other deliveries again. The server may have ignored such a word, because
// it had forgotten the delivery, and redelivered the message only later. Fenced words are
// not sent again, because the delivery may have another holder by now.
func (s *source) checkUnanswered(ctx context.Context, r *requester, tokens []*token, errs []error, c settleCall) {
	var asked *source
	for i, waits := range r.waiting {
		if waits && tokens[i].source != asked {
			asked = tokens[i].source
			_, _ = asked.checkForgotten(ctx) // without an answer nothing is known to be forgotten
		}
	}
	if !c.fenced {
		r.resend(func(i int) bool {
			return errs[i] == nil && (r.waiting[i] || !c.confirmed) && tokens[i].forgotten() == nil
		})
	}
	for i, waits := range r.waiting {
		if waits {
			if err := tokens[i].forgotten(); err != nil {
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
type delayRate struct {
	last      time.Time // of the last call
	usedUntil time.Time // until then, calls with a delayPause between them are used up
}

// next returns the time of a call that is ready now, and the pace after it.
func (p delayRate) next(now time.Time) (turn time.Time, after delayRate) {
	turn = now
	for _, earliest := range []time.Time{p.last.Add(delayGap), p.usedUntil.Add(-delayCredit * delayPause)} {
		if turn.Before(earliest) {
			turn = earliest
		}
	}
	after = delayRate{last: turn, usedUntil: p.usedUntil}
	if after.usedUntil.Before(turn) {
		after.usedUntil = turn
	}
	after.usedUntil = after.usedUntil.Add(delayPause)
	return turn, after
}

// A pacer has the paces of the groups of a backend.
type delayLimiter struct {
	mu    sync.Mutex
	rates map[string]delayRate // by topic and group
}

// forget removes the pace of a group.
func (p *delayLimiter) forget(topic, group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.rates, topic+"/"+group)
}

// turn returns how long the next Delay call for a group must wait.
func (p *delayLimiter) reserve(topic, group string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, key := time.Now(), topic+"/"+group
	turn, after := p.rates[key].next(now)
	if p.rates == nil {
		p.rates = map[string]delayRate{}
	}
	p.rates[key] = after
	return turn.Sub(now)
}
