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

// A source is one member of a group. Members of a group share its consumer.
type source struct {
	backend *Backend
	config  backend.Config
	place   *place
	needs   needs
	next    string // the subject of pulls

	closed atomic.Bool
	ended  chan struct{} // closed by close

	reading sync.Mutex // held during Receive
	pulls   pulls
	failed  bool // the last Receive failed

	halt  halt
	taken taken

	era   atomic.Pointer[era] // the present era
	tally tally
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := run(ctx, b, "attach", c.Topic+"/"+c.Group, harmless, func(ctx context.Context) (*source, error) { return attach(ctx, b, c) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

func attach(ctx context.Context, b *Backend, c backend.Config) (*source, error) {
	if c.Lease <= 0 {
		return nil, fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
	}
	p := b.place(c.Topic)
	n := needs{lease: c.Lease}
	if c.Ephemeral {
		n.mark = memberKey + rand.Text()
	}
	info, err := b.group(ctx, p, c, n)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	s := &source{
		backend: b, config: c, place: p, needs: n, ended: ended, next: b.next(p, p.consumer(c.Group)),
		pulls: pulls{
			line: newLine(b.sender, maxPull+16, ended), lost: b.sender.connection(),
			batch: maxPull, block: min(longest, c.Lease/share),
		},
	}
	s.era.Store(newEra())
	s.tally.begin(info)
	s.halt.learn(pauseOf(info))
	if !b.members.add(s) {
		s.close(ctx)
		return nil, backend.ErrClosed
	}
	return s, nil
}

// String returns only the name of the package, as [Backend.String] does.
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

// Close implements [backend.Source]. The last member of an ephemeral group deletes it. Close
// waits for the server for a second at most.
func (s *source) Close() error {
	ctx, cancel := farewell()
	defer cancel()
	s.close(ctx)
	return nil
}

// farewell returns the context of a call of Close.
func farewell() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), leaveFor) //nolint:forbidigo // Close has no context
}

// close ends the member. ctx bounds its requests.
func (s *source) close(ctx context.Context) {
	if s.closed.Swap(true) {
		return
	}
	close(s.ended)
	s.reading.Lock()
	defer s.reading.Unlock()
	s.pulls.hangUp()
	s.backend.members.remove(s)
	if s.config.Ephemeral {
		s.leave(ctx)
	}
}

// info asks the server about the consumer of the member.
func (s *source) info(ctx context.Context) (info jetstream.ConsumerInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = s.backend.ask(ctx, consumerInfo(s.place, s.config.Group), nil, &info)
	if err == nil {
		s.halt.learn(pauseOf(&info))
		s.taken.learn(&info)
	}
	return info, err
}

// fate asks the server why a consumer does not answer a request, which was sent at the time
// sent. If the consumer does not exist, or was created after that time, the error is
// ErrGone. Otherwise it is ErrUnavailable. A server that deletes a consumer may end its
// pulls without a status message.
func (s *source) fate(ctx context.Context, sent time.Time, sign string) error {
	info, err := s.info(ctx)
	gone := isCode(err, jetstream.JSErrCodeConsumerNotFound, jetstream.JSErrCodeStreamNotFound)
	if err == nil && !info.Created.IsZero() {
		gone = info.TimeStamp.Sub(info.Created) < time.Since(sent) // both times are by the clock of the server
	}
	if gone {
		return fmt.Errorf("%w: %s", backend.ErrGone, sign)
	}
	return fmt.Errorf("%w: %s", backend.ErrUnavailable, sign)
}

const unserved = "nobody serves the consumer"
