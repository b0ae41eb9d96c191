package faultbroker

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/verbs"
)

// A Store keeps the messages of a broker.
type Store interface {
	backend.Backend
	backend.Limited
	verbs.All
}

// A Client is the backend of one process.
type Client struct {
	*connection
	verbs.Verbs
	broker *Broker

	mu      sync.Mutex
	sources []*source
	closed  bool
	done    chan struct{}
}

var _ Store = (*Client)(nil)

// Broker returns the broker of c.
func (c *Client) Broker() *Broker { return c.broker }

// call sends a request of the given kind, unless the client is closed.
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
		return err // the request may still run and use own, so Publish does not read it
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

// Read implements [backend.Reader].
func (c *Client) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	ms, err := c.Verbs.Read(ctx, topic, from, limit)
	return slices.DeleteFunc(ms, func(m backend.Message) bool { return c.broker.isLost(&m) }), err
}

// Limits implements [backend.Limited].
func (c *Client) Limits() backend.Limits { return c.broker.store.Limits() }
