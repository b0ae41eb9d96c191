package faultbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A source is one member of a group.
type source struct {
	client   *Client
	next     backend.Source
	closed   atomic.Bool
	troubled atomic.Bool        // the last Receive had an error
	unread   []backend.Delivery // deliveries of answers that got lost; the next Receive gives them back
	reading  chan struct{}      // full while a read runs, so that two reads never run at the same time
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// block is how long a read waits at the broker for messages.
const block = 500 * time.Millisecond

// Receive implements [backend.Source].
func (s *source) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	if ctx.Err() != nil || s.closed.Load() {
		return s.next.Receive(ctx, limit, maxBytes)
	}
	wait := block
	if s.troubled.Load() { // the bus knows that the broker works again when a Receive returns without an error, so this one returns soon
		wait = time.Millisecond
	}
	ds, err := s.receive(ctx, limit, maxBytes, wait)
	s.troubled.Store(err != nil)
	if errors.Is(err, backend.ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %s", backend.ErrUnavailable, err.Error())
	}
	return ds, err
}

func (s *source) receive(ctx context.Context, limit int, maxBytes int64, wait time.Duration) (ds []backend.Delivery, err error) {
	conn := s.client.connection
	conn.requests.Add(1)
	time.Sleep(travel)
	was := conn.state()
	switch {
	case was.down:
		return nil, fmt.Errorf("connection refused: %w", backend.ErrUnavailable)
	case was.frozen != nil:
		return s.receiveFrozen(ctx, was, limit, maxBytes)
	}
	if err := s.returnUnread(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	reading, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	read := make(chan struct{})
	defer close(read)
	go func() {
		select {
		case <-was.broken:
			cancel()
		case <-read:
		}
	}()
	ds, err = s.take(reading, limit, maxBytes)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = ctx.Err()
	}
	if err != nil {
		return ds, err
	}
	kind := "receive"
	if len(ds) == 0 {
		kind = "" // DropReply drops only answers with deliveries
	}
	if err := conn.answer(ctx, was, kind); err != nil {
		s.unread = append(s.unread, ds...)
		return nil, err
	}
	return s.withoutLost(ctx, ds), nil
}

// returnUnread gives back the deliveries of answers that got lost, as a driver does that finds
// them at its broker, so that newer messages do not come before them.
func (s *source) returnUnread(ctx context.Context) error {
	if len(s.unread) == 0 {
		return nil
	}
	back := make([]backend.Delayed, len(s.unread))
	for i := range s.unread {
		back[i] = backend.Delayed{Delivery: s.unread[i], Refund: true}
	}
	s.unread = nil
	return s.next.(backend.Delayer).Delay(ctx, back)
}

// take reads the store one time. It copies the deliveries, because the store only lends
// them.
func (s *source) take(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	ds, err := s.next.Receive(ctx, limit, maxBytes)
	return slices.Clone(ds), err
}

// receiveFrozen reads the store after the connection thaws. If the caller has given up by then, the
// deliveries get lost.
func (s *source) receiveFrozen(ctx context.Context, was state, limit int, maxBytes int64) ([]backend.Delivery, error) {
	took := make(chan []backend.Delivery, 1)
	done := make(chan error, 1)
	go func() {
		select {
		case <-was.frozen:
			arrived, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Millisecond)
			defer cancel()
			ds, err := s.take(arrived, limit, maxBytes)
			if arrived.Err() != nil {
				err = nil
			}
			took <- ds
			done <- err
		case <-was.broken:
			done <- unknown("connection reset")
		}
	}()
	if err := within(ctx, done); err != nil {
		return nil, err
	}
	return s.withoutLost(ctx, <-took), nil
}

// withoutLost removes from ds each message that [Broker.Lose] has removed from the broker. If the
// group has received the message before, withoutLost keeps it with an error in place of its body.
func (s *source) withoutLost(ctx context.Context, ds []backend.Delivery) (rest []backend.Delivery) {
	for _, d := range ds {
		switch {
		case !s.client.broker.isLost(&d.Message):
		case d.Attempt > 1:
			d.Message = backend.Message{Topic: d.Topic, Position: d.Position}
			d.Err = fmt.Errorf("body: %w", backend.ErrGone)
		default:
			_ = s.next.Ack(context.WithoutCancel(ctx), []*backend.Delivery{&d})
			continue
		}
		rest = append(rest, d)
	}
	return rest
}

// Ack implements [backend.Source].
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	ds = Copied(ds)
	return s.settle(ctx, "ack", len(ds), func(ctx context.Context) error { return s.next.Ack(ctx, ds) })
}

// Delay implements [backend.Delayer].
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	ds = slices.Clone(ds)
	return s.settle(ctx, "delay", len(ds), func(ctx context.Context) error { return s.next.(backend.Delayer).Delay(ctx, ds) })
}

// Extend implements [backend.Extender].
func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	ds = Copied(ds)
	return s.settle(ctx, "extend", len(ds), func(ctx context.Context) error { return s.next.(backend.Extender).Extend(ctx, ds) })
}

// Copied copies deliveries that are lent to a call, for use after the call has returned.
func Copied(ds []*backend.Delivery) []*backend.Delivery {
	own := make([]backend.Delivery, len(ds))
	for i, d := range ds {
		own[i] = *d
	}
	return backend.Lend(own)
}

// settle sends one request that settles or extends n deliveries. If n is 0, it sends
// nothing.
func (s *source) settle(ctx context.Context, kind string, n int, do func(context.Context) error) error {
	switch {
	case s.closed.Load():
		return backend.ErrClosed
	case n == 0:
		return nil
	}
	return s.client.request(ctx, kind, func() error { return do(context.WithoutCancel(ctx)) })
}

// Close implements [backend.Source].
func (s *source) Close() error {
	s.closed.Store(true)
	return s.next.Close()
}
