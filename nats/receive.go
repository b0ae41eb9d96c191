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

// Pulls are the requests of a source for messages, with their state.
//
// A Receive sends pulls one after another. Each pull ends by itself after half a second at
// most. So no message is on its way between two calls of Receive. No message waits in a
// buffer, where no call would extend its lease.
type pulls struct {
	inbox   *inbox // nil before the first pull, and after a failed one
	overdue *time.Timer
	loan    slab.Loan     // memory of the deliveries that the last Receive returned
	msgs    []*natsgo.Msg // buffer of arriving.take

	sent   uint64 // number of pulls
	losses int    // number of lost connections of the sender when the last Receive began
	unsure bool   // the server may have crashed, and forgotten deliveries, since the last pull
	behind int    // undelivered messages of the consumer after the last received message
	few    int    // consecutive pulls that brought at most one message and left none undelivered

	// The limits of the consumer for one pull. A refused pull lowers them.
	batch int
	wait  time.Duration

	size int // bytes of the largest recent message
}

const (
	maxPull   = 1024                   // most messages of one pull
	pullBytes = 1 << 20                // most bytes of one pull, if each message is as large as pulls.size
	unknown   = 32 << 10               // value of pulls.size before the first message
	block     = 500 * time.Millisecond // longest wait of a pull for new messages
	share     = 8                      // a pull waits 1/8 of a lease at most, because its leases count from its beginning
	doubt     = 300 * time.Millisecond // a pull is overdue if it takes so much longer than its wait
	patience  = 2 * time.Second        // an overdue pull fails if it takes so much longer again
	lull      = 40 * time.Millisecond  // time from the end of ctx until the inbox of a waiting pull is drained
	grace     = 900 * time.Millisecond // longest wait for the end of this drain
	trickle   = 2                      // after 2 pulls with one message at most, a pull asks for one message
)

// most returns the batch size of a pull. The limit pullBytes is not sent to the server.
// With a limit in bytes, the server ends each pull with a status message. In a cluster this
// message may arrive before messages of the pull.
func (p *pulls) most(limit int) int { return min(limit, p.batch, max(1, pullBytes/p.size)) }

// brought updates size after a pull with the given deliveries.
func (p *pulls) brought(ds []backend.Delivery) {
	if len(ds) > 0 {
		p.size = max(p.size/2, 1)
	}
	for i := range ds {
		p.size = max(p.size, ds[i].Size())
	}
}

// A pull is a request to a consumer for the messages that are due. If no message is due, the
// consumer waits for the first one, for at most Expires. If NoWait is set without Expires,
// the consumer does not wait.
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
	if s.pulls.unsure { // ask before the server redelivers forgotten messages
		s.pulls.unsure = s.recollect(ctx)
	}
	for range 6 {
		ds, err = s.pull(ctx, limit)
		if errors.Is(err, backend.ErrGone) {
			s.memory.wiped()
		}
		passes := errors.Is(err, backend.ErrGone) || errors.Is(err, errNoLeader) // the cause may pass
		switch {
		case len(ds) > 0 || err == nil || !passes && !errors.Is(err, errTooMuch):
			return ds, err
		case passes && !sleep(ctx, s.ended, 50*time.Millisecond):
			return nil, errors.Join(ctx.Err(), s.unusable())
		}
		s.failed = true // the next pull does not wait
	}
	return ds, err
}

// pull fetches messages that are due. If messages come singly, it asks for one. Such a pull
// ends with the message itself, without a status message. Several messages may be
// redelivered at the same time, and the bus assumes that Receive leaves none that is due.
// So after a redelivered message, pull continues until no message is due, or until it has
// limit messages.
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

// order sends one pull and appends its messages to ds. It waits for the end of the pull
// even if ctx ends first, because messages that the server has sent have a lease. After an
// error the next pull uses a new inbox. A message that arrives in the old inbox later is
// redelivered after its lease.
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
		if err = s.meaning(ctx, asked, a.end); err != nil && !errors.Is(err, errTooMuch) {
			p.hangUp(s.backend.sender) // more messages of the pull may be on their way
		}
	}
	return a.ds, err
}

// hangUp gives up the inbox. The next pull makes a new one.
func (p *pulls) hangUp(s *sender) {
	if p.inbox != nil {
		s.unsubscribe(p.inbox)
		p.inbox = nil
	}
}

// An arriving is the state of one pull while its messages arrive.
type arriving struct {
	source *source
	sent   *sending
	reply  string
	most   int
	asked  time.Time

	ds  []backend.Delivery
	end *natsgo.Msg // status message that ended the pull; nil if the batch was filled

	done     <-chan struct{}                  // ctx.Done(), or nil after await has seen its end
	draining <-chan (<-chan natsgo.SubStatus) // result of sender.drain; nil before the drain
	drained  <-chan natsgo.SubStatus
	doubted  bool
}

// errSilence means that a pull did not end in time.
var errSilence = fmt.Errorf("%w: a pull has not ended in time", backend.ErrUnavailable)

// await gathers messages until the pull ends. If the pull has not ended after the time
// patient, await calls late. If ctx ends after the pull was sent, await calls late shortly
// afterwards. late then drains the inbox, and the server ends the pull. A message that the
// server sent during the drain is redelivered, as another attempt.
func (a *arriving) await(ctx context.Context, patient time.Duration) error {
	s := a.source
	s.pulls.overdue.Reset(patient)
	defer s.pulls.overdue.Stop()
	for len(a.ds) < a.most && a.end == nil {
		select {
		case m := <-s.pulls.inbox.msgs:
			a.take(m)
			if a.doubted && a.done != nil { // the line is slow
				a.doubted = false
				s.pulls.overdue.Reset(patience)
			}
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
		return ctx.Err() // with an error, because a drained inbox cannot be used again
	}
	return nil
}

// late handles an overdue pull. If ctx is done, it drains the inbox. Otherwise it asks the
// server why the pull has not ended. If it returns nil, await continues to wait.
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
		if err := s.fate(ctx, a.asked, "a pull has not ended in time"); !errors.Is(err, backend.ErrUnavailable) {
			return err
		}
		return nil
	}
}

// take makes deliveries of m and of all other messages that have arrived.
func (a *arriving) take(m *natsgo.Msg) {
	in, msgs := a.source.pulls.inbox, a.source.pulls.msgs[:0]
	for ; m != nil; m = next(in) {
		if m.Reply == "" { // a status message ends a pull
			if m.Subject == a.reply { // the end of this pull, not of an earlier one
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
	clear(msgs) // only the deliveries refer to these messages now
	a.source.pulls.msgs = msgs
}

// next returns a message that has arrived, or nil.
func next(in *inbox) *natsgo.Msg {
	select {
	case m := <-in.msgs:
		return m
	default:
		return nil
	}
}
