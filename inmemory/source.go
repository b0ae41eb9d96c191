package inmemory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A source is one member of a group. The lock of the topic guards all fields except loan.
type source struct {
	group *group
	lease time.Duration
	fence bool          // the member was attached with Config.ConfirmAcks, so Ack is fenced
	err   error         // the error of all calls after end; nil before end
	ended chan struct{} // closed by end
	loan  slab.Loan     // memory of the deliveries that the last Receive returned
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (_ backend.Source, err error) {
	defer func() { err = failed("attach "+c.Topic+"/"+c.Group, err) }()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	if c.Lease <= 0 {
		return nil, fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
	}
	t, err := b.directory.acquire(c.Topic, b)
	if err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	g := t.groups[c.Group]
	if g == nil {
		if g, err = t.newGroup(c.Group, c.Start); err != nil {
			return nil, err
		}
	}
	s := &source{group: g, lease: c.Lease, fence: c.ConfirmAcks, ended: make(chan struct{})}
	g.members[s] = struct{}{}
	return s, nil
}

// Close implements [backend.Source].
func (s *source) Close() error {
	s.group.topic.mu.Lock()
	defer s.group.topic.mu.Unlock()
	s.end(backend.ErrClosed)
	return nil
}

// end removes s from its group. Later calls of s fail with err. After Close, they fail with
// ErrClosed.
func (s *source) end(err error) {
	if s.err == nil {
		delete(s.group.members, s)
		close(s.ended)
	}
	if !errors.Is(s.err, backend.ErrClosed) {
		s.err = err
	}
}
