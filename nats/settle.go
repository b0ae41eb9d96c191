package nats

import (
	"context"
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

// Ack implements [backend.Source]. It sends the acknowledgements and makes sure
// that the server has read them; with ConfirmAcks, that JetStream has answered.
// A late one counts like any other.
func (s *source) Ack(ctx context.Context, ds []backend.Delivery) error {
	return s.settle(ctx, "ack", len(ds), s.config.ConfirmAcks, func(i int) *backend.Delivery { return &ds[i] },
		func(i int, r *receipt, _ time.Time) ([]byte, error) {
			r.settled = true
			return ackBody, nil
		})
}

// Delay implements [backend.Delayer].
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	return s.settle(ctx, "delay", len(ds), false, func(i int) *backend.Delivery { return &ds[i].Delivery },
		func(i int, r *receipt, now time.Time) ([]byte, error) {
			if !r.held(now) {
				return nil, backend.ErrLeaseLost
			}
			r.settled = true
			if ds[i].For <= 0 {
				return nakBody, nil
			}
			body := append(make([]byte, 0, 40), `-NAK {"delay":`...)
			return append(strconv.AppendInt(body, int64(ds[i].For), 10), '}'), nil
		})
}

// Extend implements [backend.Extender].
func (s *source) Extend(ctx context.Context, ds []backend.Delivery) error {
	return s.settle(ctx, "extend", len(ds), false, func(i int) *backend.Delivery { return &ds[i] },
		func(i int, r *receipt, now time.Time) ([]byte, error) {
			if !r.held(now) {
				return nil, backend.ErrLeaseLost
			}
			r.until = now.Add(s.config.Lease)
			return progressBody, nil
		})
}

// settle sends a word for each of n deliveries.
func (s *source) settle(ctx context.Context, op string, n int, confirmed bool, at func(int) *backend.Delivery, word func(i int, r *receipt, now time.Time) ([]byte, error)) error {
	if err := s.unusable(); err != nil {
		return s.failure(op, err)
	}
	if n == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return s.failure(op, classOf(ctx, err, false))
	}
	if !s.backend.conn.IsConnected() {
		return s.failure(op, fmt.Errorf("%w: not connected", backend.ErrUnavailable))
	}
	errs := make([]error, n)
	words := make([][]byte, n)
	now := time.Now()
	sent := 0
	for i := range n {
		r, ok := at(i).Token.(*receipt)
		if !ok || r.source.config.Topic != s.config.Topic || r.source.config.Group != s.config.Group {
			errs[i] = fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
			continue
		}
		r.mu.Lock()
		words[i], errs[i] = word(i, r, now)
		r.mu.Unlock()
		if errs[i] == nil {
			sent++
		}
	}
	if sent > 0 {
		if confirmed {
			s.confirm(ctx, words, at, errs)
		} else {
			s.send(ctx, words, at, errs)
		}
	}
	for i, err := range errs {
		errs[i] = s.failure(op, err)
	}
	return backend.AsBatchError(errs)
}

// send sends words one way, and then waits until the server has read them.
func (s *source) send(ctx context.Context, words [][]byte, at func(int) *backend.Delivery, errs []error) {
	for i, w := range words {
		if errs[i] == nil {
			if err := s.backend.conn.Publish(at(i).Token.(*receipt).reply, w); err != nil {
				errs[i] = classOf(ctx, err, false)
			}
		}
	}
	if err := s.backend.conn.FlushWithContext(ctx); err != nil {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = classOf(ctx, err, true)
			}
		}
	}
}

// confirm sends words as requests.
func (s *source) confirm(ctx context.Context, words [][]byte, at func(int) *backend.Delivery, errs []error) {
	for start := 0; start < len(words); start += lineRoom {
		end := min(start+lineRoom, len(words))
		s.confirmSome(ctx, words[start:end], func(i int) *backend.Delivery { return at(start + i) }, errs[start:end])
	}
}

func (s *source) confirmSome(ctx context.Context, words [][]byte, at func(int) *backend.Delivery, errs []error) {
	l, err := s.backend.lines.get(ctx)
	if err != nil {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = classOf(ctx, err, false)
			}
		}
		return
	}
	defer s.backend.lines.put(l)
	l.begin()
	waits := make([]bool, len(words))
	sent := 0
	for i, w := range words {
		if errs[i] != nil {
			continue
		}
		if err := s.backend.conn.PublishRequest(at(i).Token.(*receipt).reply, l.reply(i), w); err != nil {
			errs[i] = classOf(ctx, err, false)
			continue
		}
		waits[i] = true
		sent++
	}
	err = l.gather(ctx, len(words), sent, func(i int, m *natsgo.Msg) {
		waits[i] = false
		if m.Header.Get("Status") == "503" {
			errs[i] = fmt.Errorf("%w: nobody serves the consumer", backend.ErrGone)
		}
	})
	for i := range words {
		if waits[i] {
			errs[i] = classOf(ctx, err, true)
		}
	}
}
