package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/alarm"
	"github.com/seed41896749/eventbus/internal/slab"
)

// Pulls are what a source asks for messages with.
//
// Each Receive sends one pull that ends by itself: it brings what is there or,
// after half a second at most, nothing. So nothing is on its way between calls,
// and nothing ages in a buffer where nobody keeps its lease.
type pulls struct {
	heard   bool // there is an inbox
	inbox   inbox
	outbox  outbox
	overdue *alarm.Alarm // what the pull under way brings
	loan    slab.Loan    // of what the last read brought

	sent   uint64 // pulls
	unsure bool   // the server may have crashed since the last
	behind int    // what came last has so many new ones behind it
	few    int    // so many pulls on end brought one message at most, and none was behind it

	// What the consumer allows in one pull, as far as it has said so.
	batch int
	wait  time.Duration
}

const (
	maxPull  = 512                    // messages
	block    = 500 * time.Millisecond // how long a pull waits for something new, at most
	share    = 8                      // and this part of a lease, whose beginning it makes uncertain
	doubt    = 300 * time.Millisecond // after this long behind its end a pull is asked after
	patience = 2 * time.Second        // how much longer a read waits for it
	grace    = 900 * time.Millisecond // the same, when its caller has left
	trickle  = 2                      // after so many pulls that bring few the next asks for one
)

// A pull is what is asked of a consumer: what is there, or what comes first
// within Expires.
type pull struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires,omitempty"`
	NoWait  bool          `json:"no_wait,omitempty"`
}

// Receive implements [backend.Source].
func (s *source) Receive(ctx context.Context, limit int) ([]backend.Delivery, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := s.unusable(); err != nil {
		return nil, s.failure("receive", err)
	}
	if limit <= 0 || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.pulls.loan.Return()
	ds, err := s.receive(ctx, limit)
	s.failed = err != nil
	s.pulls.unsure = s.pulls.unsure || errors.Is(err, backend.ErrUnavailable)
	if err != nil && errors.Is(err, ctx.Err()) {
		return ds, ctx.Err()
	}
	return ds, s.failure("receive", err)
}

func (s *source) receive(ctx context.Context, limit int) (ds []backend.Delivery, err error) {
	s.noticeLoss()
	if s.pulls.unsure { // what it may have forgotten is found out before it hands that out anew
		s.pulls.unsure = s.recollect(ctx)
	}
	for range 6 {
		ds, err = s.pull(ctx, limit)
		if errors.Is(err, backend.ErrGone) {
			s.memory.wiped()
		}
		passes := errors.Is(err, backend.ErrGone) || errors.Is(err, errNoLeader) // as when a group is reset
		switch {
		case len(ds) > 0 || err == nil || !passes && !errors.Is(err, errTooMuch):
			return ds, err
		case passes && !s.sleep(ctx, 50*time.Millisecond):
			return nil, errors.Join(ctx.Err(), s.unusable())
		}
		s.failed = true // so that the next does not wait
	}
	return ds, err
}

// noticeLoss notes that the connection was lost.
func (s *source) noticeLoss() {
	for ; len(s.broken) > 0; s.pulls.unsure = true {
		<-s.broken
	}
}

// sleep reports whether nothing else ended it.
func (s *source) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.ended:
	}
	return false
}

// pull asks for what is there. Where messages come one by one it asks for one:
// such a pull ends with it, and not with a word of the server behind it. But what
// comes back comes together, and what a Receive leaves is taken not to be due: so
// it goes on until it has all of that, or as much as it may.
func (s *source) pull(ctx context.Context, limit int) (ds []backend.Delivery, err error) {
	order := pull{Batch: min(limit, s.pulls.batch), NoWait: true}
	if !s.failed {
		order.Expires = s.pulls.wait
		if s.pulls.few >= trickle {
			order.Batch = 1
		}
	}
	ds, err = s.order(ctx, nil, order)
	if s.pulls.few++; len(ds) > 1 || len(ds) > 0 && (ds[0].Attempt > 1 || s.pulls.behind > 0) {
		s.pulls.few = 0
	}
	for had := 0; err == nil && ctx.Err() == nil && len(ds) < limit && len(ds)-had == order.Batch && ds[len(ds)-1].Attempt > 1; {
		had, order = len(ds), pull{Batch: min(limit-len(ds), s.pulls.batch), NoWait: true}
		ds, err = s.order(ctx, ds, order)
	}
	return ds, err
}

// order makes one pull and waits for its end, whatever becomes of ctx: what the
// server has sent is leased. From a connection that does not answer it turns
// away, to a new inbox; what was on its way there comes back after its lease. What
// it brings goes behind ds.
func (s *source) order(ctx context.Context, ds []backend.Delivery, order pull) ([]backend.Delivery, error) {
	s.noticeLoss()
	if err := s.pulls.hear(s.backend.conn, s.backend.tap); err != nil {
		return ds, classOf(ctx, err, false)
	}
	out := &s.pulls.outbox
	if err := out.begin(&s.pulls.inbox); err != nil {
		return ds, err
	}
	body, err := json.Marshal(order)
	if err != nil {
		return ds, err
	}
	asked := time.Now()
	s.pulls.sent++
	inbox := s.pulls.inbox.prefix + strconv.FormatUint(s.pulls.sent, 36)
	if err = out.request(s.next, []byte(inbox), body); err == nil {
		err = out.send(ctx)
	}
	if err != nil {
		s.pulls.hangUp() // the inbox may not be known either
		return ds, classOf(ctx, err, false)
	}
	ds, end, err := s.await(ctx, ds, order, inbox, asked)
	if err != nil {
		s.pulls.hangUp()
	} else {
		err = s.meaning(ctx, end)
	}
	return ds, err
}

// errSilence is the error of a pull that has not ended in time.
var errSilence = fmt.Errorf("%w: a pull has not ended in time", backend.ErrUnavailable)

// await gathers what a pull brings, behind ds, until it ends. The message that ended it is
// nil if the pull was filled. One that does not end is asked after, before it is
// given up.
func (s *source) await(ctx context.Context, ds []backend.Delivery, order pull, inbox string, asked time.Time) (_ []backend.Delivery, end *arrival, err error) {
	s.pulls.overdue.Set(order.Expires + doubt)
	defer s.pulls.overdue.Stop()
	done := ctx.Done()
	doubted := false
	for most := len(ds) + order.Batch; len(ds) < most; {
		here, err := s.arrives(ctx, done)
		if errors.Is(err, errSilence) && !doubted {
			doubted = true
			s.pulls.overdue.Set(patience)
			if err = s.whySilent(ctx); errors.Is(err, backend.ErrUnavailable) {
				continue
			}
		}
		if err != nil {
			return ds, nil, err
		}
		if len(here) == 0 {
			done = nil
			s.pulls.overdue.Set(grace)
			continue
		}
		n := 0
		for n < min(len(here), most-len(ds)) && here[n].reply != "" {
			n++
		}
		ds = s.deliveries(ds, here[:n], most, asked)
		clear(here[:n]) // they are their receiver's now
		if n == 0 {     // the end of a pull
			n = 1
			if here[0].subject == inbox { // not what ended an earlier one
				end = &here[0]
			}
		}
		s.pulls.inbox.took(n)
		if end != nil {
			return ds, end, nil
		}
	}
	return ds, nil, nil
}

// arrives waits for messages. It returns none when the caller has left.
func (s *source) arrives(ctx context.Context, done <-chan struct{}) ([]arrival, error) {
	in := &s.pulls.inbox
	for {
		if here := in.arrived(); len(here) > 0 {
			return here, nil
		}
		select {
		case m := <-in.msgs:
			in.put(m)
		case <-in.box.some:
		case <-done:
			return nil, nil
		case <-s.pulls.overdue.C():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, errSilence
		case <-s.broken:
			return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, errConnectionLost)
		case <-s.pulls.outbox.lost():
			return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, errConnectionLost)
		case <-s.ended:
			return nil, backend.ErrClosed
		}
	}
}

// errTooMuch is the error of a pull that asks for more than a consumer allows.
// The next asks for less.
var errTooMuch = fmt.Errorf("%w: more than the consumer allows in one pull", backend.ErrUnavailable)

// meaning is the error that the message which ended a pull stands for.
func (s *source) meaning(ctx context.Context, end *arrival) error {
	if end == nil {
		return nil
	}
	switch status, text := end.status(); {
	case status == "408" && text == "Requests Pending": // others wait before us for what there is
		s.sleep(ctx, 20*time.Millisecond)
		return nil
	case status == "404", status == "408": // no messages; or fewer than asked for, in time
		return nil
	case status == "503":
		if err := s.fate(ctx, errUnserved.Error()); errors.Is(err, backend.ErrGone) {
			return err
		}
		return errNoLeader
	case status != "409":
		return fmt.Errorf("%w: status %s %s", backend.ErrRefused, status, text)
	case strings.HasPrefix(text, "Consumer Deleted"):
		return fmt.Errorf("%w: %s", backend.ErrGone, text)
	case strings.HasPrefix(text, "Leadership Change"), strings.HasPrefix(text, "Server Shutdown"), strings.HasPrefix(text, "Exceeded MaxWaiting"):
		return fmt.Errorf("%w: %s", backend.ErrUnavailable, text)
	case s.pulls.lower(text):
		return errTooMuch
	default:
		return fmt.Errorf("%w: %s", backend.ErrRefused, text)
	}
}

// errNoLeader is the error of a pull that comes to nobody, although the consumer
// is there.
var errNoLeader = fmt.Errorf("%w: %w", backend.ErrUnavailable, errUnserved)

// lower asks for less from now on, if a refusal says how much is allowed.
func (p *pulls) lower(refusal string) bool {
	if rest, ok := strings.CutPrefix(refusal, "Exceeded MaxRequestBatch of "); ok {
		n, err := strconv.Atoi(rest)
		ok = err == nil && n > 0 && n < p.batch
		if ok {
			p.batch = n
		}
		return ok
	}
	if rest, ok := strings.CutPrefix(refusal, "Exceeded MaxRequestExpires of "); ok {
		d, err := time.ParseDuration(rest)
		ok = err == nil && d > 0 && d < p.wait
		if ok {
			p.wait = d
		}
		return ok
	}
	return false
}

// whySilent says why a pull was not answered.
func (s *source) whySilent(ctx context.Context) error {
	v := s.pulls.outbox.violation()
	if concerns(v, s.next) || concerns(v, s.pulls.inbox.prefix+"*") {
		return fmt.Errorf("%w: %w", backend.ErrDenied, v)
	}
	return s.fate(ctx, "a pull has not ended in time")
}

// fate says what has become of a consumer that does not answer: it is gone, or
// nobody leads it at the moment.
func (s *source) fate(ctx context.Context, sign string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := s.backend.ask(ctx, consumerInfo(s.place, s.config.Group), nil, nil)
	if isCode(err, jetstream.JSErrCodeConsumerNotFound, jetstream.JSErrCodeStreamNotFound) {
		return fmt.Errorf("%w: %s", backend.ErrGone, sign)
	}
	return fmt.Errorf("%w: %s", backend.ErrUnavailable, sign)
}

// hear makes sure of an inbox.
func (p *pulls) hear(conn *natsgo.Conn, t *tap) error {
	if p.heard {
		return nil
	}
	p.heard = true
	p.outbox = newOutbox(conn)
	err := p.inbox.open(conn, t, conn.NewInbox()+".", 2*maxPull)
	if err != nil {
		p.hangUp()
	}
	return err
}

// hangUp leaves the inbox.
func (p *pulls) hangUp() {
	if p.heard {
		p.inbox.close()
		p.heard = false
	}
}
