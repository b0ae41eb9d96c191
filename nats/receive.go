package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// Pulls are the requests of a source for messages, with their state.
//
// A Receive sends pulls one after another. Each pull ends by itself after half a second at
// most. So no message is on its way between two calls of Receive. No message waits in a
// buffer, where no call would extend its lease.
type pulls struct {
	line
	loan slab.Loan     // memory of the deliveries that the last Receive returned
	msgs []*natsgo.Msg // buffer of arrival.msgs

	count  uint64        // number of pulls
	lost   chan struct{} // closed when the connection of the last Receive was lost
	unsure bool          // the server may have crashed, and forgotten deliveries, since the last pull

	batch int           // most messages of one pull
	block time.Duration // longest wait of one pull
	size  int           // bytes of the largest recent message
}

const (
	maxPull   = 1024                   // most messages of one pull
	pullBytes = 1 << 20                // most bytes of one pull, if each message is as large as pulls.size
	unknown   = 32 << 10               // value of pulls.size before the first message
	longest   = 500 * time.Millisecond // longest wait of a pull for new messages
	share     = 8                      // a pull waits 1/8 of a lease at most, because its leases count from its beginning
	together  = 64                     // most deliveries that share memory, so one that is held keeps all of them
	doubt     = 300 * time.Millisecond // a pull is overdue if it takes so much longer than its wait
	patience  = 2 * time.Second        // an overdue pull fails if it takes so much longer again
	lull      = 40 * time.Millisecond  // time from the end of ctx until the inbox of a waiting pull is drained
	grace     = 900 * time.Millisecond // longest wait for the end of this drain
)

// respect makes later pulls keep the limits of the consumer.
func (p *pulls) respect(limits jetstream.ConsumerConfig) {
	if limits.MaxRequestBatch > 0 {
		p.batch = min(p.batch, limits.MaxRequestBatch)
	}
	if limits.MaxRequestExpires > 0 {
		p.block = min(p.block, limits.MaxRequestExpires)
	}
}

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
	if lost := s.backend.sender.connection(); lost != s.pulls.lost {
		s.pulls.lost, s.pulls.unsure = lost, true
	}
	if s.pulls.unsure { // ask before the server redelivers forgotten messages
		s.pulls.unsure = s.recollect(ctx)
	}
	for range 6 {
		ds, err = s.pull(ctx, limit)
		isGone := errors.Is(err, backend.ErrGone)
		if isGone {
			s.wiped()
		}
		if len(ds) > 0 || !isGone && !errors.Is(err, errPasses) {
			return ds, err
		}
		if !sleep(ctx, s.ended, 50*time.Millisecond) { // the cause may pass
			return nil, errors.Join(ctx.Err(), s.unusable())
		}
		s.failed = true // the next pull does not wait
	}
	return ds, err
}

// A pull is a request to a consumer for the messages that are due. If no message is due, the
// consumer waits for the first one, for at most Expires. If NoWait is set without Expires,
// the consumer does not wait.
type pull struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires,omitempty"`
	NoWait  bool          `json:"no_wait,omitempty"`
}

// pull fetches messages that are due. Several messages may be redelivered at the same time,
// and the bus assumes that Receive leaves none that is due. So after a redelivered message,
// pull continues until no message is due, or until it has limit messages.
func (s *source) pull(ctx context.Context, limit int) (ds []backend.Delivery, err error) {
	order := pull{Batch: s.pulls.most(limit), NoWait: true}
	if !s.failed {
		order.Expires = s.pulls.block
	}
	for {
		had := len(ds)
		ds, err = s.order(ctx, ds, order)
		more := len(ds) > 0 && ds[len(ds)-1].Attempt > 1 && len(ds)-had == order.Batch && len(ds) < limit
		if !more || err != nil || ctx.Err() != nil {
			return ds, err
		}
		order = pull{Batch: s.pulls.most(limit - len(ds)), NoWait: true}
	}
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
	p.open()
	p.count++
	a := arrival{
		source: s, most: order.Batch, reply: p.inbox.prefix + strconv.FormatUint(p.count, 36),
		asked: time.Now(), msgs: p.msgs[:0],
	}
	p.sent = p.sender.send(p.inbox, []outgoing{{subject: s.next, reply: a.reply, data: body}}, p.lost)
	if err = a.await(ctx, order.Expires+doubt); err == nil && a.end != nil {
		err = s.meaning(ctx, a.asked, a.end)
	}
	if err != nil {
		p.sender.leave(p.sent) // if the pull was not sent yet, it never is
		for len(p.inbox.msgs) > 0 && !a.over() {
			a.take(<-p.inbox.msgs)
		}
		p.hangUp()
	}
	had := len(ds)
	for some := range slices.Chunk(a.msgs, together) {
		ds = s.deliveries(ds, some, a.asked)
	}
	p.brought(ds[had:])
	clear(a.msgs) // only the deliveries refer to these messages now
	p.msgs = a.msgs
	return ds, err
}

// An arrival is the state of one pull while its messages arrive.
type arrival struct {
	source *source
	most   int
	reply  string
	asked  time.Time

	msgs []*natsgo.Msg
	end  *natsgo.Msg // status message that ended the pull; nil if the batch was filled
}

func (a *arrival) over() bool { return len(a.msgs) == a.most || a.end != nil }

// take handles a message. A status message ends the pull that it names.
func (a *arrival) take(m *natsgo.Msg) {
	if m.Reply != "" {
		a.msgs = append(a.msgs, m)
	} else if m.Subject == a.reply {
		a.end = m
	}
}

// errSilence means that a pull did not end in time.
var errSilence = fmt.Errorf("%w: a pull has not ended in time", backend.ErrUnavailable)

// await gathers messages until the pull ends. If none comes for the time pause, it asks the
// server why, and waits once more.
func (a *arrival) await(ctx context.Context, pause time.Duration) error {
	s := a.source
	for doubted := false; !a.over(); {
		m, err := s.pulls.wait(ctx, pause)
		failed, notSent := errors.AsType[backend.BatchError](err)
		switch {
		case m != nil:
			a.take(m)
			doubted = false // the line is slow
		case notSent:
			return classOf(ctx, failed[0], false)
		case errors.Is(err, natsgo.ErrPermissionViolation):
			if concerns(err, s.next) || concerns(err, s.pulls.inbox.prefix+"*") {
				return fmt.Errorf("%w: %w", backend.ErrDenied, err)
			}
		case err != nil && errors.Is(err, ctx.Err()):
			return a.withdraw(ctx)
		case err != nil:
			return classOf(ctx, err, false)
		case doubted:
			return errSilence
		default:
			doubted, pause = true, patience
			if err := s.fate(ctx, a.asked, "a pull has not ended in time"); !errors.Is(err, backend.ErrUnavailable) {
				return err
			}
		}
	}
	return nil
}

// withdraw ends a pull whose caller has left. It waits a moment for the end of the pull, and
// then drains the inbox, so that the server ends the pull. A message that the server sent
// during the drain is redelivered, as another attempt.
func (a *arrival) withdraw(ctx context.Context) error {
	l := &a.source.pulls.line
	if l.sender.leave(l.sent) {
		return ctx.Err()
	}
	var drained <-chan struct{}
	l.timer.Reset(lull)
	for !a.over() {
		select {
		case m := <-l.inbox.msgs:
			a.take(m)
			continue
		case <-l.timer.C:
			if drained == nil {
				drained = l.drain()
				l.timer.Reset(grace)
				continue
			}
		case <-drained:
		case <-l.sent.lost:
		case <-l.ended:
		}
		return ctx.Err()
	}
	if drained != nil {
		return ctx.Err() // with an error, because a drained inbox cannot be used again
	}
	return nil
}
