package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

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
func (s *source) Ack(ctx context.Context, ds []backend.Delivery) error {
	return s.settle(ctx, settling{
		op: "ack", n: len(ds), confirmed: s.config.ConfirmAcks,
		at:   func(i int) *backend.Delivery { return &ds[i] },
		word: func(int) []byte { return ackBody },
		said: func(r *receipt, _ bool) { r.until.Store(0) },
	})
}

// Delay implements [backend.Delayer].
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
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
func (s *source) Extend(ctx context.Context, ds []backend.Delivery) error {
	began := time.Now()
	return s.settle(ctx, settling{
		op: "extend", n: len(ds), fenced: true,
		at:   func(i int) *backend.Delivery { return &ds[i] },
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
	if !s.backend.conn.IsConnected() {
		return s.failure(c.op, errNotConnected)
	}
	l, err := s.backend.lines.Get(ctx)
	if err != nil {
		return s.failure(c.op, classOf(ctx, err, false))
	}
	defer s.backend.lines.Put(l)
	errs := make([]error, c.n)
	for start := 0; start < c.n; start += lineRoom {
		s.say(ctx, l, c, start, errs[start:min(start+lineRoom, c.n)])
	}
	for i, err := range errs {
		errs[i] = s.failure(c.op, err)
	}
	return backend.AsBatchError(errs)
}

// say says the words of a call from start on, as many as there are errs. The
// server deals with them in order: its answer to the last stands for all.
func (s *source) say(ctx context.Context, l *line, c settling, start int, errs []error) {
	l.begin(len(errs))
	receipts := make([]*receipt, len(errs))
	last := -1
	for i := range errs {
		if receipts[i], errs[i] = s.receipt(c, c.at(start+i)); errs[i] == nil {
			last = i
		}
	}
	for i, r := range receipts {
		if errs[i] != nil {
			continue
		}
		var err error
		if c.confirmed || i == last {
			if err = s.backend.conn.PublishRequest(r.reply, l.reply(i), c.word(start+i)); err == nil {
				l.asked(i)
			}
		} else {
			err = s.backend.conn.Publish(r.reply, c.word(start+i))
		}
		errs[i] = classOf(ctx, err, false)
	}
	s.hear(ctx, l, c, receipts, errs)
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
	return r, nil
}

// hear waits for the answers.
func (s *source) hear(ctx context.Context, l *line, c settling, receipts []*receipt, errs []error) {
	var last error // what became of it, which stands for those that are not answered
	err := l.gather(ctx, func(i int) string { return receipts[i].reply }, func(i int, m *natsgo.Msg, denied error) {
		if errs[i] = denied; denied == nil && isUnserved(m) {
			errs[i] = errUnserved
		}
		last = errs[i]
	})
	if err != nil {
		last = classOf(ctx, err, true)
	}
	var fate error
	for i := range errs {
		if errs[i] == nil && (l.waits[i] || !c.confirmed) {
			errs[i] = last
		}
		if errs[i] == errUnserved { //nolint:errorlint // a mark
			if fate == nil {
				fate = s.fate(ctx, errUnserved.Error())
			}
			errs[i] = fate
		}
	}
}

var errUnserved = errors.New("nobody serves the consumer")
