package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// Pulls are the requests for messages of a source.
//
// Each Receive sends one pull that ends by itself: it brings what is there or,
// after half a second at most, nothing. So nothing is on its way between calls,
// and nothing ages in a buffer where nobody keeps its lease.
type pulls struct {
	inbox   *inbox // nil before the first, and after one that failed
	overdue *time.Timer
	loan    slab.Loan     // of what the last read brought
	msgs    []*natsgo.Msg // memory

	sent   uint64 // pulls
	losses int    // of the connection, before the last pull
	unsure bool   // the server may have crashed since the last
	behind int    // the last message has so many new ones behind it
	few    int    // so many pulls on end brought one message at most, and none was behind it

	// What the consumer allows in one pull, as far as it has said so.
	batch int
	wait  time.Duration

	size int // of the largest messages lately, in bytes
}

const (
	maxPull   = 1024                   // messages
	pullBytes = 8 << 20                // as far as the size of a message is known
	unknown   = 64 << 10               // the size of a message before one is known, or more
	block     = 500 * time.Millisecond // how long a pull waits for something new, at most
	share     = 8                      // and this part of a lease, whose beginning it makes uncertain
	doubt     = 300 * time.Millisecond // after this long behind its end a pull is asked after
	patience  = 2 * time.Second        // how much longer a read waits for it
	lull      = 40 * time.Millisecond  // when its caller has left, a pull that has brought nothing for so long is drained
	grace     = 900 * time.Millisecond // and it is waited for so long
	trickle   = 2                      // after so many pulls that bring few the next asks for one
)

// most is how many messages to ask for. A bound in bytes is not told to the server:
// it would end each pull with a word more, and in a cluster that overtakes messages.
func (p *pulls) most(limit int) int { return min(limit, p.batch, max(1, pullBytes/p.size)) }

// brought notes how large the messages of a pull are.
func (p *pulls) brought(ds []backend.Delivery) {
	if len(ds) > 0 {
		p.size = max(p.size/2, 1)
	}
	for i := range ds {
		p.size = max(p.size, ds[i].Size())
	}
}

// A pull is a request to a consumer: for what is there, or what comes first within
// Expires.
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
	s.failed = err != nil && !errors.Is(err, ctx.Err())
	s.pulls.unsure = s.pulls.unsure || errors.Is(err, backend.ErrUnavailable)
	if err != nil && errors.Is(err, ctx.Err()) {
		return ds, ctx.Err()
	}
	return ds, s.failure("receive", err)
}

func (s *source) receive(ctx context.Context, limit int) (ds []backend.Delivery, err error) {
	if losses := s.backend.sender.lossCount(); losses != s.pulls.losses {
		s.pulls.losses, s.pulls.unsure = losses, true
	}
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
		case passes && !sleep(ctx, s.ended, 50*time.Millisecond):
			return nil, errors.Join(ctx.Err(), s.unusable())
		}
		s.failed = true // so that the next does not wait
	}
	return ds, err
}

// pull asks for what is there. Where messages come one by one it asks for one:
// such a pull ends with it, and not with a word of the server behind it. But what
// comes back comes together, and what a Receive leaves is taken not to be due: so
// it goes on until it has all of that, or as much as it may.
func (s *source) pull(ctx context.Context, limit int) (ds []backend.Delivery, err error) {
	order := pull{Batch: s.pulls.most(limit), NoWait: true}
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
		had, order = len(ds), pull{Batch: s.pulls.most(limit - len(ds)), NoWait: true}
		ds, err = s.order(ctx, ds, order)
	}
	return ds, err
}

// order makes one pull and waits for its end, whatever becomes of ctx: the messages
// that the server has sent are leased. After an error the next pull has a new inbox;
// messages on their way to the old one come back after their lease. The messages go
// behind ds.
func (s *source) order(ctx context.Context, ds []backend.Delivery, order pull) ([]backend.Delivery, error) {
	body, err := json.Marshal(order)
	if err != nil {
		return ds, err
	}
	p := &s.pulls
	if p.inbox == nil {
		p.inbox = newInbox(s.backend.conn, maxPull+16)
	}
	asked := time.Now()
	p.sent++
	reply := p.inbox.prefix + strconv.FormatUint(p.sent, 36)
	sent := newSending(p.inbox, []outgoing{{subject: s.next, reply: reply, data: body}})
	sent.losses = p.losses
	s.backend.sender.send(sent)
	a := arriving{source: s, sent: sent, reply: reply, most: len(ds) + order.Batch, asked: asked, ds: ds, done: ctx.Done()}
	err = a.await(ctx, order.Expires+doubt)
	defer func() { p.brought(a.ds[len(ds):]) }()
	if err != nil {
		for m := next(p.inbox); m != nil && len(a.ds) < a.most; m = next(p.inbox) {
			a.take(m)
		}
		p.hangUp(s.backend.sender)
	} else if a.end != nil {
		err = s.meaning(ctx, a.end)
	}
	return a.ds, err
}

// hangUp leaves the inbox.
func (p *pulls) hangUp(s *sender) {
	if p.inbox != nil {
		s.unsubscribe(p.inbox)
		p.inbox = nil
	}
}

// An arriving pull gathers what the pull brings.
type arriving struct {
	source *source
	sent   *sending
	reply  string
	most   int
	asked  time.Time

	ds  []backend.Delivery
	end *natsgo.Msg // of the pull; nil if the pull was filled

	done     <-chan struct{}                  // of the context; nil when its end is noticed
	draining <-chan (<-chan natsgo.SubStatus) // nil before that
	drained  <-chan natsgo.SubStatus
	doubted  bool
}

// errSilence is the error of a pull that has not ended in time.
var errSilence = fmt.Errorf("%w: a pull has not ended in time", backend.ErrUnavailable)

// await gathers messages until the pull ends. A pull that does not end is asked
// after, before it is given up. Soon after ctx is done the inbox is drained: the server
// then ends the pull. A message that is delivered at that very moment it hands out
// anew, as another attempt. With a message just before that the pull ends by itself.
func (a *arriving) await(ctx context.Context, patient time.Duration) error {
	s := a.source
	s.pulls.overdue.Reset(patient)
	defer s.pulls.overdue.Stop()
	for len(a.ds) < a.most && a.end == nil {
		select {
		case m := <-s.pulls.inbox.msgs:
			a.take(m)
		case <-a.done:
			if s.backend.sender.leave(a.sent) {
				return ctx.Err()
			}
			a.done = nil
			s.pulls.overdue.Reset(lull)
		case a.drained = <-a.draining:
		case <-a.drained:
			return ctx.Err()
		case errs := <-a.sent.failed:
			return classOf(ctx, errs[0], false)
		case violation := <-a.sent.refused:
			if concerns(violation, s.next) || concerns(violation, s.pulls.inbox.prefix+"*") {
				return fmt.Errorf("%w: %w", backend.ErrDenied, violation)
			}
		case <-s.pulls.overdue.C:
			if err := a.late(ctx); err != nil {
				return err
			}
		case <-a.sent.lost:
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, errConnectionLost)
		case <-s.ended:
			return backend.ErrClosed
		}
	}
	if a.draining != nil {
		return ctx.Err() // the inbox ends
	}
	return nil
}

// late ends a pull whose caller has left, and finds out why another has not ended in
// time. Nil says to wait on.
func (a *arriving) late(ctx context.Context) error {
	switch s := a.source; {
	case ctx.Err() != nil && a.draining == nil:
		a.draining = s.backend.sender.drain(s.pulls.inbox)
		s.pulls.overdue.Reset(grace)
		return nil
	case ctx.Err() != nil:
		s.backend.sender.leave(a.sent)
		return ctx.Err()
	case a.doubted:
		s.backend.sender.leave(a.sent)
		return errSilence
	default:
		a.doubted = true
		s.backend.sender.doubt(a.sent)
		s.pulls.overdue.Reset(patience)
		if err := s.fate(ctx, "a pull has not ended in time"); !errors.Is(err, backend.ErrUnavailable) {
			return err
		}
		return nil
	}
}

// take takes a message, and those that are here with it.
func (a *arriving) take(m *natsgo.Msg) {
	in, msgs := a.source.pulls.inbox, a.source.pulls.msgs[:0]
	for ; m != nil; m = next(in) {
		if m.Reply == "" { // the end of a pull
			if m.Subject == a.reply { // and not of an earlier one
				a.end = m
				break
			}
			continue
		}
		if msgs = append(msgs, m); len(a.ds)+len(msgs) == a.most {
			break
		}
	}
	a.ds = a.source.deliveries(a.ds, msgs, a.most, a.asked)
	clear(msgs) // they are their receiver's now
	a.source.pulls.msgs = msgs
}

// next returns a message that is here; nil if there is none.
func next(in *inbox) *natsgo.Msg {
	select {
	case m := <-in.msgs:
		return m
	default:
		return nil
	}
}
