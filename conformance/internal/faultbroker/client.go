package faultbroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Client is the backend of one process.
type Client struct {
	*line
	broker *Broker

	mu      sync.Mutex
	sources []*source
	closed  bool
	done    chan struct{}
}

var _ Store = (*Client)(nil)

// Broker returns the broker of c.
func (c *Client) Broker() *Broker { return c.broker }

// call makes a request unless the client is closed.
func (c *Client) call(ctx context.Context, kind string, do func() error) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return backend.ErrClosed
	}
	return c.request(ctx, kind, do)
}

// Publish implements [backend.Backend].
func (c *Client) Publish(ctx context.Context, msgs []*backend.Message) error {
	if err := ctx.Err(); err != nil {
		return c.broker.store.Publish(ctx, msgs)
	}
	own := make([]*backend.Message, len(msgs))
	for i, m := range msgs {
		o := *m
		o.Headers, o.Payload = slices.Clone(m.Headers), bytes.Clone(m.Payload)
		own[i] = &o
	}
	err := c.call(ctx, "publish", func() error { return c.broker.store.Publish(context.WithoutCancel(ctx), own) })
	if errors.Is(err, backend.ErrUnknownOutcome) || errors.Is(err, backend.ErrUnavailable) {
		return err // the request may still go on
	}
	for i, m := range msgs {
		m.Position, m.Duplicate = own[i].Position, own[i].Duplicate
	}
	return err
}

// Attach implements [backend.Backend].
func (c *Client) Attach(ctx context.Context, config backend.Config) (backend.Source, error) {
	var src backend.Source
	attached := make(chan backend.Source, 1)
	err := c.call(ctx, "attach", func() error {
		src, err := c.broker.store.Attach(ctx, config)
		if err == nil {
			attached <- src
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	src = <-attached
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &source{client: c, next: src, reading: make(chan struct{}, 1)}
	c.sources = append(c.sources, s)
	return s, nil
}

// Close implements [backend.Backend].
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	close(c.done)
	var errs []error
	for _, s := range c.sources {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// ask is call for a verb that returns a value.
func ask[T any](ctx context.Context, c *Client, do func() (T, error)) (T, error) {
	answer := make(chan T, 1)
	err := c.call(ctx, "", func() error {
		v, err := do()
		answer <- v
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-answer, nil
}

// Maintain implements [backend.Maintainer].
func (c *Client) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	return ask(ctx, c, func() (time.Duration, error) { return c.broker.store.Maintain(ctx, topic, group) })
}

// Read implements [backend.Reader].
func (c *Client) Read(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
	return ask(ctx, c, func() ([]backend.Message, error) {
		ms, err := c.broker.store.Read(ctx, topic, from, limit)
		return slices.DeleteFunc(ms, func(m backend.Message) bool { return c.broker.isLost(&m) }), err
	})
}

// Remove implements [backend.Remover].
func (c *Client) Remove(ctx context.Context, topic string, positions []string) error {
	return c.call(ctx, "", func() error { return c.broker.store.Remove(ctx, topic, positions) })
}

// Stats implements [backend.Statser].
func (c *Client) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	return ask(ctx, c, func() (backend.Stats, error) { return c.broker.store.Stats(ctx, topic, group) })
}

// Topics implements [backend.Admin].
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	return ask(ctx, c, func() ([]string, error) { return c.broker.store.Topics(ctx) })
}

// Groups implements [backend.Admin].
func (c *Client) Groups(ctx context.Context, topic string) ([]string, error) {
	return ask(ctx, c, func() ([]string, error) { return c.broker.store.Groups(ctx, topic) })
}

// DeleteTopic implements [backend.Admin].
func (c *Client) DeleteTopic(ctx context.Context, topic string) error {
	return c.call(ctx, "", func() error { return c.broker.store.DeleteTopic(ctx, topic) })
}

// DeleteGroup implements [backend.Admin].
func (c *Client) DeleteGroup(ctx context.Context, topic, group string) error {
	return c.call(ctx, "", func() error { return c.broker.store.DeleteGroup(ctx, topic, group) })
}

// ResetGroup implements [backend.Admin].
func (c *Client) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	return c.call(ctx, "", func() error { return c.broker.store.ResetGroup(ctx, topic, group, start) })
}

// Declare implements [backend.Declarer]. A topic is made with its first group.
func (c *Client) Declare(ctx context.Context, topic string) error {
	const group = "declares"
	return c.call(ctx, "", func() error {
		src, err := c.broker.store.Attach(ctx, backend.Config{Topic: topic, Group: group, Lease: time.Second})
		if err != nil {
			return err
		}
		return errors.Join(src.Close(), c.broker.store.DeleteGroup(ctx, topic, group))
	})
}

// Ping implements [backend.Pinger].
func (c *Client) Ping(ctx context.Context) error {
	return c.call(ctx, "", func() error { return c.broker.store.Ping(ctx) })
}

// Limits implements [backend.Limited].
func (c *Client) Limits() backend.Limits { return c.broker.store.Limits() }

// A source is one member of a group.
type source struct {
	client   *Client
	next     backend.Source
	closed   atomic.Bool
	troubled atomic.Bool   // the last Receive had an error
	reading  chan struct{} // full during a read, because a read that is held up may meet the next
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// block is how long a read waits at the broker.
const block = 500 * time.Millisecond

// Receive implements [backend.Source].
func (s *source) Receive(ctx context.Context, limit int) ([]backend.Delivery, error) {
	if ctx.Err() != nil || s.closed.Load() {
		return s.next.Receive(ctx, limit)
	}
	wait := block
	if s.troubled.Load() { // the bus waits for the next answer, even an empty one
		wait = time.Millisecond
	}
	ds, err := s.receive(ctx, limit, wait)
	s.troubled.Store(err != nil)
	if errors.Is(err, backend.ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %s", backend.ErrUnavailable, err.Error())
	}
	return ds, err
}

func (s *source) receive(ctx context.Context, limit int, wait time.Duration) (ds []backend.Delivery, err error) {
	l := s.client.line
	l.requests.Add(1)
	time.Sleep(travel)
	was := l.state()
	switch {
	case was.down:
		return nil, fmt.Errorf("connection refused: %w", backend.ErrUnavailable)
	case was.frozen != nil:
		return s.heldUp(ctx, was, limit)
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
	ds, err = s.take(reading, limit)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = ctx.Err()
	}
	if err != nil {
		return ds, err
	}
	kind := "receive"
	if len(ds) == 0 {
		kind = "" // no law drops an empty answer
	}
	if err := l.answer(ctx, was, kind); err != nil {
		return nil, err
	}
	return s.whole(ctx, ds), nil
}

// take is one read. It returns a copy of the deliveries, which are lent.
func (s *source) take(ctx context.Context, limit int) ([]backend.Delivery, error) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	ds, err := s.next.Receive(ctx, limit)
	return slices.Clone(ds), err
}

// heldUp is a read that arrives when the line thaws. If the caller has given up, the
// deliveries get lost.
func (s *source) heldUp(ctx context.Context, was state, limit int) ([]backend.Delivery, error) {
	took := make(chan []backend.Delivery, 1)
	done := make(chan error, 1)
	go func() {
		select {
		case <-was.frozen:
			arrived, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Millisecond)
			defer cancel()
			ds, err := s.take(arrived, limit)
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
	return s.whole(ctx, <-took), nil
}

// whole takes lost messages out of ds. A lost message that is redelivered has an error and
// no body. A lost message that was never delivered before is left out.
func (s *source) whole(ctx context.Context, ds []backend.Delivery) (rest []backend.Delivery) {
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

// Copied copies deliveries that are lent to one call, for use when the call has returned.
func Copied(ds []*backend.Delivery) []*backend.Delivery {
	own := make([]backend.Delivery, len(ds))
	for i, d := range ds {
		own[i] = *d
	}
	return backend.Lend(own)
}

// settle makes one request, unless there is nothing to settle.
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
