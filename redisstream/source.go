package redisstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A source is one member of a group: a consumer, and a connection of its own to
// wait on.
//
// Receive takes what is new by XREADGROUP. What comes back (delays that are due,
// leases that have passed) it takes by a script, when a delay is due as far as it
// knows, and otherwise every half second.
type source struct {
	backend *Backend
	config  backend.Config
	stream  string
	delayed string
	name    string // of the consumer
	reader  *wire

	closed atomic.Bool

	reading sync.Mutex // held during Receive
	batch   batch
	failed  bool // the last Receive did
	turn    int  // where the script looks next
	after   string

	mu    sync.Mutex
	sweep time.Time // when to run the script next
	waits bool      // a read is waiting, until sweep
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.attach(ctx, c)
	if err != nil {
		return nil, b.failure("attach", c.Topic+"/"+c.Group, err)
	}
	return s, nil
}

func (b *Backend) attach(ctx context.Context, c backend.Config) (*source, error) {
	if b.closed.Load() {
		return nil, backend.ErrClosed
	}
	if c.Lease <= 0 {
		return nil, fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
	}
	start, err := startID(c.Start)
	if err != nil {
		return nil, err
	}
	if err := b.checkServer(ctx); err != nil {
		return nil, err
	}
	s := &source{backend: b, config: c, stream: b.streamKey(c.Topic), name: memberName(c.Lease)}
	s.delayed = delayedKey(s.stream, c.Group)
	if _, err := b.run(ctx, &attachScript, []string{s.stream, trimmedKey(s.stream), youngKey(s.stream)}, c.Group, s.name, start, millis(b.youth)); err != nil {
		return nil, err
	}
	s.reader = newWire(b, block+patience)
	s.reader.onDone = s.unblock
	b.mu.Lock()
	closed := b.closed.Load()
	if !closed {
		b.sources[s] = struct{}{}
	}
	b.mu.Unlock()
	if closed {
		return nil, errors.Join(backend.ErrClosed, s.close()) //nolint:contextcheck // closing has none
	}
	b.server.tell(c)
	return s, nil
}

func (b *Backend) checkServer(ctx context.Context) error {
	return b.with(ctx, func(w *wire) error { return b.server.check(ctx, b, w) })
}

// startID is where a group begins, in the words of XGROUP CREATE.
func startID(start backend.Start) (string, error) {
	switch start {
	case backend.StartEarliest:
		return "0", nil
	case backend.StartLatest:
		return "$", nil
	}
	position, ok := start.After()
	if !ok {
		return "", fmt.Errorf("%w: start %q", backend.ErrRefused, start)
	}
	if err := checkPosition(position); err != nil {
		return "", fmt.Errorf("%w: %w", backend.ErrRefused, err)
	}
	return position, nil
}

func (s *source) unusable() error {
	if s.closed.Load() || s.backend.closed.Load() {
		return backend.ErrClosed
	}
	return nil
}

// failure is err with the place where it happened; of a closed source it is
// ErrClosed.
func (s *source) failure(op string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) && !errors.Is(err, backend.ErrUnknownOutcome) && !errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	if s.closed.Load() {
		err = asClosed(err)
	}
	return s.backend.failure(op, s.config.Topic+"/"+s.config.Group, err)
}

// Close implements [backend.Source].
func (s *source) Close() error {
	return s.failure("close", s.close())
}

func (s *source) close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.reader.end()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.backend.mu.Lock()
	delete(s.backend.sources, s)
	s.backend.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // Close has none
	defer cancel()
	// Leaving is a courtesy: a member that could not is removed by Maintain.
	_, _ = s.backend.run(ctx, &leaveScript, []string{s.stream}, s.config.Group, s.name)
	return s.reader.close()
}
