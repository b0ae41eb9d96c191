package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// A source is one member of a group. All members of a group share its consumer.
type source struct {
	backend     *Backend
	config      backend.Config
	loc         *location
	needs       needs
	pullSubject string // where pulls are sent

	closed atomic.Bool
	ended  chan struct{} // closed by close

	reading sync.Mutex // held during Receive
	puller  puller
	failed  bool // the last Receive failed

	pause              pauseState
	settledByOperators settledList

	generation atomic.Pointer[generation] // of the deliveries that arrive now
	tracker    tracker
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := run(ctx, b, "attach", c.Topic+"/"+c.Group, harmless, func(ctx context.Context) (*source, error) { return b.attach(ctx, c) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (b *Backend) attach(ctx context.Context, c backend.Config) (*source, error) {
	if c.Lease <= 0 {
		return nil, fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
	}
	loc := b.locate(c.Topic)
	n := needs{lease: c.Lease}
	if c.Ephemeral {
		n.mark = memberKey + rand.Text()
	}
	info, err := b.ensureGroup(ctx, loc, c, n)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	s := &source{
		backend: b, config: c, loc: loc, needs: n, ended: ended, pullSubject: b.pullSubject(loc, loc.consumer(c.Group)),
		puller: puller{
			replyInbox: newReplyInbox(b.sender, maxBatch+16, ended), lost: b.sender.connection(),
			batch: maxBatch, block: min(maxPullWait, c.Lease/leaseShare),
		},
	}
	s.generation.Store(newGeneration())
	s.tracker.init(info)
	s.pause.update(pauseOf(info))
	if !b.members.add(s) {
		s.close(ctx)
		return nil, backend.ErrClosed
	}
	return s, nil
}

// String returns only the name of the package, like [Backend.String].
func (*source) String() string { return "nats" }

func (s *source) unusable() error {
	if s.closed.Load() || s.backend.closed.Load() {
		return backend.ErrClosed
	}
	return nil
}

func (s *source) failure(op string, err error) error {
	if err == nil {
		return nil
	}
	if s.closed.Load() && !errors.Is(err, backend.ErrUnknownOutcome) {
		err = backend.ErrClosed
	}
	return failure(s.backend.closed.Load(), op, s.config.Topic+"/"+s.config.Group, err)
}

// Close implements [backend.Source]. The last member of an ephemeral group deletes the group.
// Close waits for the server for a second at most.
func (s *source) Close() error {
	ctx, cancel := closeContext()
	defer cancel()
	s.close(ctx)
	return nil
}

// closeContext returns the context of a Close, which has none of its own.
func closeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), closeTimeout) //nolint:forbidigo // Close has no context
}

// close ends the member. ctx bounds its requests.
func (s *source) close(ctx context.Context) {
	if s.closed.Swap(true) {
		return
	}
	close(s.ended)
	s.reading.Lock()
	defer s.reading.Unlock()
	s.puller.closeInbox()
	s.backend.members.remove(s)
	if s.config.Ephemeral {
		s.leave(ctx)
	}
}

// info asks the server about the member's consumer.
func (s *source) info(ctx context.Context) (info jetstream.ConsumerInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = s.backend.ask(ctx, consumerInfo(s.loc, s.config.Group), nil, &info)
	if err == nil {
		s.pause.update(pauseOf(&info))
		s.settledByOperators.update(&info)
	}
	return info, err
}

// diagnose asks the server why a consumer has not answered a request, which was sent at the
// time sent. If the consumer does not exist, or was created after that, the error is ErrGone;
// otherwise it is ErrUnavailable. Asking is necessary because a server that deletes a consumer
// may drop its pulls without a status message.
func (s *source) diagnose(ctx context.Context, sent time.Time, sign string) error {
	info, err := s.info(ctx)
	gone := isCode(err, jetstream.JSErrCodeConsumerNotFound, jetstream.JSErrCodeStreamNotFound)
	if err == nil && !info.Created.IsZero() {
		gone = info.TimeStamp.Sub(info.Created) < time.Since(sent) // both times are the server's
	}
	if gone {
		return fmt.Errorf("%w: %s", backend.ErrGone, sign)
	}
	return fmt.Errorf("%w: %s", backend.ErrUnavailable, sign)
}

const unservedText = "nobody serves the consumer"
