package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Client reads and changes the logs of topics, for the callers of a bus. Its methods are
// safe for concurrent use.
type Client struct {
	backend backend.Backend
	publish func(ctx context.Context, ms []*backend.Message) error

	mu     sync.Mutex
	topics map[string]*clientTopic
}

// A clientTopic has the parts of a Client for one topic.
type clientTopic struct {
	mu    sync.Mutex
	view  *View
	clock *Clock
}

// NewClient returns a Client that stores records by publish.
func NewClient(b backend.Backend, publish func(ctx context.Context, ms []*backend.Message) error) *Client {
	return &Client{backend: b, publish: publish, topics: map[string]*clientTopic{}}
}

// Check returns an error that says why events of topic cannot be scheduled on b, or nil.
func Check(b backend.Backend, topic string) error {
	if err := backend.CheckName(tokenTopic(topic)); err != nil {
		return err
	}
	if _, ok := backend.As[backend.Reader](b); !ok {
		return fmt.Errorf("%w: the backend cannot read topics", errors.ErrUnsupported)
	}
	if _, ok := backend.As[backend.Remover](b); !ok {
		return fmt.Errorf("%w: the backend cannot remove messages", errors.ErrUnsupported)
	}
	return nil
}

func (c *Client) topic(name string) *clientTopic {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[name]
	if t == nil {
		t = &clientTopic{view: NewView(c.backend, name), clock: NewClock(c.backend, name)}
		c.topics[name] = t
	}
	return t
}

// Now returns the time of the broker, see [Clock.Now].
func (c *Client) Now(ctx context.Context, topic string) (time.Time, error) {
	t := c.topic(topic)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock.Now(ctx)
}

// refresh reads the log up to a position, or to its end if the position is empty.
func (t *clientTopic) refresh(ctx context.Context, to string) error {
	defer func() { t.view.forgetOld(time.Now()) }()
	if to == "" {
		return t.view.Refresh(ctx)
	}
	return t.view.RefreshTo(ctx, to)
}

// Cancel cancels the pending events of IDs. It returns for each ID whether its event will
// certainly never be published.
func (c *Client) Cancel(ctx context.Context, topic string, ids []string) ([]bool, error) {
	cancelled := make([]bool, len(ids))
	t := c.topic(topic)
	pending, err := t.pending(ctx, ids)
	if err != nil || len(pending) == 0 {
		return cancelled, err
	}
	record, err := list(topic, isCancel, pending)
	if err != nil {
		return cancelled, err
	}
	if err := c.publish(ctx, []*backend.Message{record}); err != nil {
		return cancelled, backend.ErrorAt(err, 0)
	}
	result, err := t.result(ctx, record.Position)
	if err != nil {
		return cancelled, err
	}
	for i, id := range ids {
		cancelled[i] = result[id]
	}
	return cancelled, nil
}

func (t *clientTopic) pending(ctx context.Context, ids []string) (pending []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(ctx, ""); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if t.view.Pending(id) && !slices.Contains(pending, id) {
			pending = append(pending, id)
		}
	}
	return pending, nil
}

// result returns the result of the cancel record at a position.
func (t *clientTopic) result(ctx context.Context, position string) (result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.view.read < position {
		if err := t.refresh(ctx, position); err != nil {
			return nil, err
		}
	}
	r, ok := t.view.Cancelled(position)
	if !ok {
		return nil, errUnread
	}
	return r, nil
}

// Look returns a View of the present state of the log of a topic.
func (c *Client) Look(ctx context.Context, topic string) (*View, error) {
	v := NewView(c.backend, topic)
	return v, v.Refresh(ctx)
}

// Enter stores an entry that makes copies of m, unless its topic has the same entry already. An
// entry that was paused stays paused.
func (c *Client) Enter(ctx context.Context, m *backend.Message, id string, p Plan, ttl time.Duration) error {
	topic := m.Topic
	v, err := c.Look(ctx, topic)
	if err != nil {
		return err
	}
	if p.Since, err = c.Now(ctx, topic); err != nil {
		return err
	}
	if r := v.entries[id]; r != nil {
		p.Paused = r.Plan.Paused
		if r.Plan == p.since(r.Plan.Since) {
			return nil
		}
	}
	record, err := EntryRecord(m, id, p, ttl)
	if err != nil {
		return err
	}
	return backend.ErrorAt(c.publish(ctx, []*backend.Message{record}), 0)
}

// Forget ends the entries of IDs, and reports for each whether there was one.
func (c *Client) Forget(ctx context.Context, topic string, ids []string) ([]bool, error) {
	ended := make([]bool, len(ids))
	v, err := c.Look(ctx, topic)
	if err != nil {
		return ended, err
	}
	var known []string
	for i, id := range ids {
		if ended[i] = v.entries[id] != nil; ended[i] {
			known = append(known, id)
		}
	}
	if len(known) == 0 {
		return ended, nil
	}
	record, err := list(topic, isForget, known)
	if err != nil {
		return ended, err
	}
	return ended, backend.ErrorAt(c.publish(ctx, []*backend.Message{record}), 0)
}

// Pause pauses or resumes the entry of an ID. It returns ErrGone if there is none.
func (c *Client) Pause(ctx context.Context, topic, id string, paused bool) error {
	v, err := c.Look(ctx, topic)
	if err != nil {
		return err
	}
	r := v.entries[id]
	if r == nil {
		return fmt.Errorf("%w: there is no recurring entry %q", backend.ErrGone, id)
	}
	if r.Plan.Paused == paused {
		return nil
	}
	plan := r.Plan
	plan.Paused = paused
	if plan.Since, err = c.Now(ctx, topic); err != nil {
		return err
	}
	record, err := r.with(plan)
	if err != nil {
		return err
	}
	return backend.ErrorAt(c.publish(ctx, []*backend.Message{record}), 0)
}
