package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var (
	ackBody      = []byte("+ACK")
	nakBody      = []byte("-NAK")
	progressBody = []byte("+WPI")
)

// A settling is one call that says a word about each of n deliveries.
type settling struct {
	op        string
	n         int
	confirmed bool // the server answers each; otherwise only the last
	fenced    bool // only its holder may say it
	at        func(i int) *backend.Delivery
	word      func(i int) []byte

	// Said is called when the server has heard it, or may have.
	said func(r *receipt, certain bool)
}

// Ack implements [backend.Source]. It sends the acknowledgements and waits for
// the answer to the last; with ConfirmAcks, to each. A late one counts like any
// other.
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.settle(ctx, settling{
		op: "ack", n: len(ds), confirmed: s.config.ConfirmAcks,
		at:   func(i int) *backend.Delivery { return ds[i] },
		word: func(int) []byte { return ackBody },
		said: func(r *receipt, _ bool) { r.until.Store(0) },
	})
}

// delayPause is the least time between two calls of Delay. With each the server
// puts off by 10 ms to look for what is due: if they came without a pause, nothing
// would ever come back.
const delayPause = 25 * time.Millisecond

// pause waits for the turn of a call of Delay.
func (s *source) pause(ctx context.Context) {
	now := time.Now()
	s.pausing.Lock()
	turn := s.nextDelay
	if turn.Before(now) {
		turn = now
	}
	s.nextDelay = turn.Add(delayPause)
	s.pausing.Unlock()
	if wait := turn.Sub(now); wait > 0 {
		s.sleep(ctx, wait)
	}
}

// Delay implements [backend.Delayer].
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	if len(ds) > 0 {
		s.pause(ctx)
	}
	return s.settle(ctx, settling{
		op: "delay", n: len(ds), fenced: true,
		at: func(i int) *backend.Delivery { return &ds[i].Delivery },
		word: func(i int) []byte {
			if ds[i].For <= 0 {
				return nakBody
			}
			body := append(make([]byte, 0, 40), `-NAK {"delay":`...)
			return append(strconv.AppendInt(body, int64(ds[i].For), 10), '}')
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
	l, err := s.backend.lines.Get(ctx)
	if err != nil {
		return s.failure(c.op, classOf(ctx, err, false))
	}
	defer s.backend.lines.Put(l)
	errs := make([]error, c.n)
	for start := 0; start < c.n; start += lineRoom {
		part := errs[start:min(start+lineRoom, c.n)]
		if err := ctx.Err(); err != nil {
			for i := range part {
				part[i] = classOf(ctx, err, false)
			}
			continue
		}
		s.say(ctx, l, c, start, part)
	}
	for i, err := range errs {
		errs[i] = s.failure(c.op, err)
	}
	return backend.AsBatchError(errs)
}

// say says the words of a call from start on, as many as there are errs. The
// server deals with them in order: its answer to the last stands for all.
func (s *source) say(ctx context.Context, l *line, c settling, start int, errs []error) {
	unsent := l.begin(len(errs))
	receipts := make([]*receipt, len(errs))
	last := -1
	for i := range errs {
		if receipts[i], errs[i] = s.receipt(c, c.at(start+i)); errs[i] == nil {
			last = i
		}
	}
	lost := false // what was sent before may not have left either
	for i, r := range receipts {
		if errs[i] != nil || unsent != nil {
			continue
		}
		var reply []byte
		asks := c.confirmed || i == last
		if asks {
			reply = l.reply(i)
		}
		err := l.outbox.request(r.reply, reply, c.word(start+i))
		if errs[i] = classOf(ctx, err, false); err != nil {
			lost = true
		} else if asks {
			l.asked(i)
		}
	}
	if unsent == nil {
		unsent = l.send(ctx)
	}
	for i := range errs {
		if errs[i] == nil {
			errs[i] = classOf(ctx, unsent, false)
		}
	}
	s.hear(ctx, l, c, start, receipts, errs, lost)
	for i, r := range receipts {
		if unknown := errors.Is(errs[i], backend.ErrUnknownOutcome); errs[i] == nil || unknown {
			c.said(r, !unknown)
		}
	}
}

// receipt returns that of a delivery, if the word may be said of it.
func (s *source) receipt(c settling, d *backend.Delivery) (*receipt, error) {
	r, ok := d.Token.(*receipt)
	if !ok || *r.source.place != *s.place || r.source.config.Group != s.config.Group {
		return nil, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
	}
	if c.fenced && !r.held() {
		return nil, backend.ErrLeaseLost
	}
	return r, r.forgotten()
}

// hear waits for the answers to the words from start on.
func (s *source) hear(ctx context.Context, l *line, c settling, start int, receipts []*receipt, errs []error, lost bool) {
	var last error // what became of it, which stands for those that are not answered
	err := l.gather(ctx, func(i int) string { return receipts[i].reply }, func(i int, m *arrival, err error) {
		if errs[i] = err; err == nil && m.isUnserved() {
			errs[i] = errUnserved
		}
		last = errs[i]
	}, func() func(i int) error {
		var asked *source
		for i, r := range receipts {
			if l.waits[i] && r.source != asked {
				asked = r.source
				asked.recollect(ctx)
			}
		}
		if !c.fenced { // the rest only its holder may say, who may not be one by now
			repeat(ctx, l, c, start, receipts, errs)
		}
		return func(i int) error { return receipts[i].forgotten() }
	})
	switch {
	case err != nil:
		last = classOf(ctx, err, true)
	case lost:
		last = classOf(ctx, errConnectionLost, true)
	}
	var fate error
	for i := range errs {
		if errs[i] == nil && (l.waits[i] || !c.confirmed) {
			errs[i] = last
			if errors.Is(last, errForgotten) {
				errs[i] = receipts[i].forgotten()
			}
		}
		if errs[i] == errUnserved { //nolint:errorlint // a mark
			if fate == nil {
				fate = s.fate(ctx, errUnserved.Error())
			}
			errs[i] = fate
		}
	}
}

// repeat says once more what is not answered: the server, which had forgotten to have
// handed it out, may have heard it before it handed it out anew. What cannot be said
// stays unanswered.
func repeat(ctx context.Context, l *line, c settling, start int, receipts []*receipt, errs []error) {
	before := l.outbox.before
	if l.outbox.begin(&l.inbox) != nil {
		return
	}
	l.outbox.before = before
	for i, r := range receipts {
		if errs[i] != nil || c.confirmed && !l.waits[i] || r.forgotten() != nil {
			continue
		}
		var reply []byte
		if l.waits[i] {
			reply = l.reply(i)
		}
		if l.outbox.request(r.reply, reply, c.word(start+i)) != nil {
			return
		}
	}
	_ = l.outbox.send(ctx)
}

var errUnserved = errors.New("nobody serves the consumer")
