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

// Pulls are a source's requests for messages.
//
// Each Receive sends one pull, which ends by itself after half a second at most. So no
// message is in flight between two calls, and none ages in a buffer where nobody extends
// its lease.
type pulls struct {
	inbox   *inbox // nil before the first pull, and after a failed one
	overdue *time.Timer
	loan    slab.Loan     // memory of the last read's deliveries
	msgs    []*natsgo.Msg // reused buffer

	sent   uint64 // number of pulls
	losses int    // the sender's losses before the last pull
	unsure bool   // the server may have crashed, and forgotten deliveries, since the last pull
	behind int    // undelivered messages behind the last one
	few    int    // consecutive pulls that brought one message at most, with none behind it

	// The consumer's limits for one pull, learned from its refusals.
	batch int
	wait  time.Duration

	size int // of the largest recent message, in bytes
}

const (
	maxPull   = 1024                   // messages
	pullBytes = 8 << 20                // bound of a pull, by the size of recent messages
	unknown   = 64 << 10               // assumed size of the first message
	block     = 500 * time.Millisecond // the longest wait of a pull for new messages
	share     = 8                      // a wait takes at most 1/8 of a lease, which may begin anywhere in the wait
	doubt     = 300 * time.Millisecond // the source asks why a pull is overdue by this
	patience  = 2 * time.Second        // how long the pull may still take after that question
	lull      = 40 * time.Millisecond  // from the end of ctx until a waiting pull's inbox is drained
	grace     = 900 * time.Millisecond // the longest wait for the end of the drain
	trickle   = 2                      // after 2 pulls with one message at most, the next asks for one
)

// most returns the batch size of a pull. The bound in bytes is not sent to the server. With
// such a bound the server ends each pull with a status message, which in a cluster may arrive
// before messages of the pull.
func (p *pulls) most(limit int) int { return min(limit, p.batch, max(1, pullBytes/p.size)) }

// brought updates size by the messages of a pull.
func (p *pulls) brought(ds []backend.Delivery) {
	if len(ds) > 0 {
		p.size = max(p.size/2, 1)
	}
	for i := range ds {
		p.size = max(p.size, ds[i].Size())
	}
}

// A pull is a request to a consumer for the messages that are ready. If none is ready, the
// consumer waits for the first one, no longer than Expires.
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
		passes := errors.Is(err, backend.ErrGone) || errors.Is(err, errNoLeader) // perhaps for a moment, such as during a reset
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

// pull fetches the messages that are ready. If messages trickle in, it asks for one: such
// a pull ends with the message itself, without a status message. Redeliveries come in
// groups, and the bus assumes that Receive left none that is due. So after a redelivery,
// pull goes on until it has them all, or limit.
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

// order sends one pull and appends its messages to ds. It waits for the end of the pull even
// if ctx ends first, because messages that the server has sent are leased. After an error
// the next pull uses a new inbox. Messages on their way to the old inbox are redelivered when
// their lease expires.
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
			p.hangUp(s.backend.sender) // messages of the pull may still be on their way
		}
	}
	return a.ds, err
}

// hangUp ends the inbox. The next pull makes a new one.
func (p *pulls) hangUp(s *sender) {
	if p.inbox != nil {
		s.unsubscribe(p.inbox)
		p.inbox = nil
	}
}

// An arriving pull gathers the messages of one pull.
type arriving struct {
	source *source
	sent   *sending
	reply  string
	most   int
	asked  time.Time

	ds  []backend.Delivery
	end *natsgo.Msg // status message that ended the pull; nil if the batch was filled

	done     <-chan struct{}                  // of ctx; nil once its end is handled
	draining <-chan (<-chan natsgo.SubStatus) // nil until draining begins
	drained  <-chan natsgo.SubStatus
	doubted  bool
}

// errSilence means that a pull did not end in time.
var errSilence = fmt.Errorf("%w: a pull has not ended in time", backend.ErrUnavailable)

// await gathers messages until the pull ends. It calls late for an overdue pull. Shortly
// after ctx is done it drains the inbox, and the server then ends the pull. The server
// redelivers a message that it sent during the drain as another attempt.
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
		return ctx.Err() // a drained inbox is not used again
	}
	return nil
}

// late handles an overdue pull. If ctx is done, it drains the inbox. Otherwise it asks the
// server why the pull has not ended. After a nil result await continues to wait.
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

// take takes a message and all further ones that have arrived.
func (a *arriving) take(m *natsgo.Msg) {
	in, msgs := a.source.pulls.inbox, a.source.pulls.msgs[:0]
	for ; m != nil; m = next(in) {
		if m.Reply == "" { // a status message ends a pull
			if m.Subject == a.reply { // this pull, not an earlier one
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
	clear(msgs) // the deliveries own them now
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
