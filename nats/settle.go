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

// A settleCall describes a kind of call: Ack, Delay or Extend.
type settleCall struct {
	op        string
	confirmed bool // the server answers every message, not only the last one
	fenced    bool // send nothing unless the lease is certainly held

	// before, unless it is nil, is called for each message that will be sent.
	before func(tok *token, msg ackMessage)

	// after is called for each message that was to be sent.
	after func(tok *token, msg ackMessage, o outcome)
}

// An outcome says whether the server has received an acknowledgement message.
type outcome int

const (
	outcomeFailed outcome = iota
	outcomeUncertain
	outcomeDone
)

// An ackMessage tells the server what becomes of a delivery.
type ackMessage struct {
	delivery *backend.Delivery
	body     []byte        // +ACK, -NAK, or +WPI (in progress)
	delay    time.Duration // of a NAK: how long until the message is due
}

// sameBody returns the same message about each delivery.
func sameBody(body []byte, ds []*backend.Delivery) []ackMessage {
	all := make([]ackMessage, len(ds))
	for i, d := range ds {
		all[i] = ackMessage{delivery: d, body: body}
	}
	return all
}

// Ack implements [backend.Source]. It sends an acknowledgement of each delivery and waits for
// the answer to the last one, or with Config.ConfirmAcks for every answer. The server accepts
// an acknowledgement even after the lease has expired.
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.settle(ctx, sameBody(ackBody, ds), settleCall{op: "ack", confirmed: s.config.ConfirmAcks, after: func(tok *token, _ ackMessage, o outcome) {
		switch o {
		case outcomeDone:
			tok.source.tracker.settled(tok)
		case outcomeUncertain:
			tok.ackUncertain.Store(true) // the lease continues, because the message may still be pending
		}
	}})
}

// Delay implements [backend.Delayer]. If its outcome is unknown, you may repeat it: a repetition
// succeeds if it is sent before the message may be due, if the message has been redelivered, or
// if the member is alone in its group and has recalled the message.
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	called := time.Now()
	for i := range ds {
		if tok, ok := ds[i].Token.(*token); ok && tok.mayBeRedelivered() {
			if err := tok.source.resolveDelays(ctx); err != nil {
				return s.failure("delay", err)
			}
		}
	}
	if slices.ContainsFunc(ds, func(d backend.Delayed) bool { return d.For > 0 }) { // a NAK without a delay does not set the server's timer
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

// sendAcks sends acknowledgement messages and returns the error of each. The server handles
// them in order, so the answer to the last one is also the result of earlier ones without an
// answer.
func (s *source) sendAcks(ctx context.Context, r *requester, all []ackMessage, c settleCall) []error {
	errs, tokens := make([]error, len(all)), make([]*token, len(all))
	r.begin(len(all))
	defer r.end()
	r.mem.Expect(0, 0, len(all)*r.replyLen())
	final := -1 // the last message
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
	var last, unserved error // the newest result; why nobody serves the consumer
	r.exchange(ctx, callOptions{
		onAnswer: func(i int, m *natsgo.Msg, err error) {
			if m != nil && isUnserved(m) {
				if unserved == nil {
					unserved = s.diagnose(ctx, time.Now(), unservedText)
				}
				err = unserved
			}
			last = classOf(ctx, err, true)
			if errs[i] = last; m == nil && errors.Is(err, backend.ErrUnavailable) {
				last = classOf(ctx, errConnectionLost, true) // earlier messages may have been sent
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

// record records the result of a message that was to be sent.
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

// errGivenBack means that a Delay need not be sent, because an earlier one was done.
var errGivenBack = errors.New("the message has been given back already")

// sendable returns the token of a delivery. After an error the message must not be sent.
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

// checkUnanswered asks the server which of the unanswered deliveries it has forgotten, and
// sends the messages about the others again: the server may have ignored one, because it had
// forgotten the delivery and only later redelivered the message. It does not repeat fenced
// messages, because the delivery may have another holder by now.
func (s *source) checkUnanswered(ctx context.Context, r *requester, tokens []*token, errs []error, c settleCall) {
	var asked *source
	for i, waits := range r.waiting {
		if waits && tokens[i].source != asked {
			asked = tokens[i].source
			_, _ = asked.checkForgotten(ctx) // without an answer nothing is known
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

// The server redelivers the due messages of a consumer by a timer, and each NAK with a delay
// sets this timer to 10 ms. A steady stream of them therefore puts off redelivery for ever. If
// each process sends one Delay call in 200 ms, up to 20 processes leave a gap of 10 ms in every
// 200 ms.
//
// A group therefore gets one Delay call in each delayPause. Calls that were not used are saved up, to
// delayCredit, and may then be made with only a delayGap between them. That way an event that
// fails a few times still comes back after its own short delays.
const (
	delayPause  = 200 * time.Millisecond
	delayCredit = 4
	delayGap    = 15 * time.Millisecond
)

// A delayRate says when the next Delay call of a group in this process may be sent.
type delayRate struct {
	last      time.Time // of the latest call
	usedUntil time.Time // until then, calls with a delayPause between them are used up
}

// next returns when a call that is ready now may be sent, and the rate after it.
func (r delayRate) next(now time.Time) (turn time.Time, after delayRate) {
	turn = now
	for _, earliest := range []time.Time{r.last.Add(delayGap), r.usedUntil.Add(-delayCredit * delayPause)} {
		if turn.Before(earliest) {
			turn = earliest
		}
	}
	after = delayRate{last: turn, usedUntil: r.usedUntil}
	if after.usedUntil.Before(turn) {
		after.usedUntil = turn
	}
	after.usedUntil = after.usedUntil.Add(delayPause)
	return turn, after
}

// A delayLimiter holds the rates of all groups of a backend.
type delayLimiter struct {
	mu    sync.Mutex
	rates map[string]delayRate // by topic and group
}

// forget removes the rate of a group.
func (l *delayLimiter) forget(topic, group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.rates, topic+"/"+group)
}

// reserve returns how long the next Delay call for a group must wait.
func (l *delayLimiter) reserve(topic, group string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, key := time.Now(), topic+"/"+group
	turn, after := l.rates[key].next(now)
	if l.rates == nil {
		l.rates = map[string]delayRate{}
	}
	l.rates[key] = after
	return turn.Sub(now)
}
