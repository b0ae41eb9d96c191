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

// A settling is one call of Ack, Delay or Extend. It sends a word about each of n
// deliveries: +ACK, -NAK, or +WPI (in progress).
type settling struct {
	op        string
	n         int
	confirmed bool // the server answers every word; if not set, only the last one
	fenced    bool // a word is not sent unless the lease is certainly held
	at        func(i int) *backend.Delivery
	word      func(i int) []byte

	// said is called for each word that the server has received (certain), or may have
	// received.
	said func(r *receipt, certain bool)
}

// Ack implements [backend.Source]. It sends an acknowledgement of each delivery and waits
// for the answer to the last one. With Config.ConfirmAcks it waits for every answer. The
// server accepts an acknowledgement even after the lease has expired.
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.settle(ctx, settling{
		op: "ack", n: len(ds), confirmed: s.config.ConfirmAcks,
		at:   func(i int) *backend.Delivery { return ds[i] },
		word: func(int) []byte { return ackBody },
		said: func(r *receipt, _ bool) { r.until.Store(0) },
	})
}

// delayPause is the least time between two Delay calls for a group in one process. A
// consumer redelivers due messages by a timer, and each NAK with a delay sets this timer to
// 10 ms. So it redelivers only after 10 ms without such a NAK. With up to 20 processes
// there is such a pause in each 200 ms.
const delayPause = 200 * time.Millisecond

// A pace makes the Delay calls of a group in this process wait for each other. It lets one of
// the waiting calls go on per delayPause.
type pace struct {
	mu   sync.Mutex
	next time.Time // earliest time of the next Delay call
}

// paceOf returns the pace of a group.
func (b *Backend) paceOf(topic, group string) *pace {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.paces[topic+"/"+group]
	if p == nil {
		p = new(pace)
		b.paces[topic+"/"+group] = p
	}
	return p
}

// await waits until delayPause has passed since the Delay call before this one. It returns
// earlier if ctx is done or ended is closed.
func (p *pace) await(ctx context.Context, ended <-chan struct{}) {
	now := time.Now()
	p.mu.Lock()
	turn := p.next
	if turn.Before(now) {
		turn = now
	}
	p.next = turn.Add(delayPause)
	p.mu.Unlock()
	if wait := turn.Sub(now); wait > 0 {
		sleep(ctx, ended, wait)
	}
}

// Delay implements [backend.Delayer].
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	called := time.Now()
	if slices.ContainsFunc(ds, func(d backend.Delayed) bool { return d.For > 0 }) { // a NAK without a delay does not set the timer
		s.pace.await(ctx, s.ended)
	}
	waited := time.Since(called)
	return s.settle(ctx, settling{
		op: "delay", n: len(ds), fenced: true,
		at: func(i int) *backend.Delivery { return &ds[i].Delivery },
		word: func(i int) []byte {
			if ds[i].For <= 0 {
				return nakBody
			}
			// The delay is at least 1 ms, because the server redelivers messages without a
			// delay first. They would overtake earlier messages of the same key that are
			// due by the timer.
			left := max(ds[i].For-waited, time.Millisecond)
			body := append(make([]byte, 0, 40), `-NAK {"delay":`...)
			return append(strconv.AppendInt(body, int64(left), 10), '}')
		},
		said: func(r *receipt, _ bool) { r.until.Store(0) },
	})
}

// Extend implements [backend.Extender].
func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	began := time.Now()
	return s.settle(ctx, settling{
		op: "extend", n: len(ds), fenced: true,
		at:   func(i int) *backend.Delivery { return ds[i] },
		word: func(int) []byte { return progressBody },
		said: func(r *receipt, certain bool) {
			if certain {
				r.extend(began, s.config.Lease)
			}
		},
	})
}

func (s *source) settle(ctx context.Context, c settling) error {
	if err := s.unusable(); err != nil {
		return s.failure(c.op, err)
	}
	if c.n == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return s.failure(c.op, classOf(ctx, err, false))
	}
	r, err := s.backend.requesters.Get(ctx)
	if err != nil {
		return s.failure(c.op, classOf(ctx, err, false))
	}
	defer s.backend.requesters.Put(r)
	errs := make([]error, c.n)
	for start := 0; start < c.n; start += requestRoom {
		part := errs[start:min(start+requestRoom, c.n)]
		if err := ctx.Err(); err != nil {
			fill(part, classOf(ctx, err, false))
			continue
		}
		s.sendPart(ctx, r, c, start, part)
	}
	for i, err := range errs {
		errs[i] = s.failure(c.op, err)
	}
	return backend.AsBatchError(errs)
}

// A part is a share of a settling's deliveries that is sent together: at most requestRoom,
// the first of them with the index start.
type part struct {
	settling
	start    int
	receipts []*receipt
	errs     []error
	at       []int // at[n] is the index of request n in receipts and errs
	last     error // the result of the newest answer, also for earlier words without an answer of their own
}

// sendPart sends the words about len(errs) deliveries from the index start on. The server
// handles words in order, so the answer to the last word is also the result of the others.
func (s *source) sendPart(ctx context.Context, r *requester, c settling, start int, errs []error) {
	p := &part{settling: c, start: start, receipts: make([]*receipt, len(errs)), errs: errs, at: make([]int, 0, len(errs))}
	for i := range errs {
		if p.receipts[i], errs[i] = s.receipt(c, c.at(start+i)); errs[i] == nil {
			p.at = append(p.at, i)
		}
	}
	if len(p.at) == 0 {
		return
	}
	r.begin(len(p.at))
	defer r.end()
	r.mem.Expect(0, 0, len(p.at)*r.replyLen())
	for n, i := range p.at {
		r.add(outgoing{subject: p.receipts[i].reply, data: c.word(start + i)}, c.confirmed || n == len(p.at)-1)
	}
	s.awaitPart(ctx, r, p)
	for i, receipt := range p.receipts {
		if unknown := errors.Is(errs[i], backend.ErrUnknownOutcome); errs[i] == nil || unknown {
			c.said(receipt, !unknown)
		}
	}
}

// receipt returns the receipt of a delivery, or an error if the word about it must not be
// sent.
func (s *source) receipt(c settling, d *backend.Delivery) (*receipt, error) {
	r, ok := d.Token.(*receipt)
	if !ok || *r.source.place != *s.place || r.source.config.Group != s.config.Group {
		return nil, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
	}
	if c.fenced && !r.held() || r.generation < r.source.memory.gone.Load() {
		return nil, backend.ErrLeaseLost
	}
	return r, r.forgotten()
}

// awaitPart sends the words of p, waits for the answers, and sets the errors in p.errs.
func (s *source) awaitPart(ctx context.Context, r *requester, p *part) {
	err := r.exchange(ctx, conversation{
		got: func(n int, m *natsgo.Msg) {
			if p.last = nil; isUnserved(m) {
				p.last = errUnserved
			}
			p.errs[p.at[n]] = p.last
		},
		failed: func(n int, err error) {
			if p.errs[p.at[n]], p.last = err, err; errors.Is(err, backend.ErrUnavailable) {
				p.last = classOf(ctx, errConnectionLost, true) // earlier words may have been sent
			}
		},
		why: func() func(n int) error {
			s.askWhy(ctx, r, p)
			return func(n int) error { return p.receipts[p.at[n]].forgotten() }
		},
	})
	if err != nil {
		p.last = classOf(ctx, err, true)
	}
	for n, i := range p.at {
		if p.errs[i] == nil && (r.waits[n] || !p.confirmed) {
			p.errs[i] = p.last
			if errors.Is(p.last, errForgotten) {
				p.errs[i] = p.receipts[i].forgotten()
			}
		}
	}
	s.tellFate(ctx, p.errs)
}

// askWhy asks the server which of the unanswered deliveries it has forgotten. It sends the
// words about the other deliveries again. The server may have ignored such a word, because
// it had forgotten the delivery, and redelivered the message only later. Fenced words are
// not sent again, because the delivery may have another holder by now.
func (s *source) askWhy(ctx context.Context, r *requester, p *part) {
	var asked *source
	for n, i := range p.at {
		if member := p.receipts[i].source; r.waits[n] && member != asked {
			asked = member
			asked.recollect(ctx)
		}
	}
	if !p.fenced {
		r.again(func(n int) bool {
			i := p.at[n]
			return p.errs[i] == nil && (r.waits[n] || !p.confirmed) && p.receipts[i].forgotten() == nil
		})
	}
}

// tellFate replaces each errUnserved in errs by the error that source.fate returns.
func (s *source) tellFate(ctx context.Context, errs []error) {
	var fate error
	for i := range errs {
		if errs[i] == errUnserved { //nolint:errorlint // a marker, never wrapped
			if fate == nil {
				fate = s.fate(ctx, time.Now(), errUnserved.Error())
			}
			errs[i] = fate
		}
	}
}

var errUnserved = errors.New("nobody serves the consumer")
