package redisstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

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
	ended  chan struct{} // closed with it

	reading sync.Mutex // held during Receive
	batch   batch
	failed  bool // the last Receive did
	turn    int  // where the script looks next
	after   string

	mu    sync.Mutex
	sweep time.Time // when to run the script next
	waits bool      // a read is waiting, until sweep
	id    int64     // of the reader's connection, 0 if not known
	dial  int64     // the connection that id is of
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
	s := &source{backend: b, config: c, stream: b.streamKey(c.Topic), name: memberName(c.Lease), ended: make(chan struct{})}
	s.delayed = delayedKey(s.stream, c.Group)
	if _, err := b.run(ctx, &attachScript, []string{s.stream}, c.Group, s.name, start); err != nil {
		return nil, err
	}
	s.reader = newWire(b.lent, block+patience)
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
	w, err := b.wires.get(ctx)
	if err != nil {
		return classOf(ctx, err, false)
	}
	defer b.wires.put(w)
	return b.server.check(ctx, b, w)
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

const (
	sweepEvery = 500 * time.Millisecond
	maxSweep   = 100                    // deliveries of one run of the script: others wait for as long as it runs
	grace      = 900 * time.Millisecond // what a read has to bring what is on its way, when its context is done
)

// Receive implements [backend.Source].
func (s *source) Receive(ctx context.Context, limit int) ([]backend.Delivery, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := s.unusable(); err != nil {
		return nil, s.failure("receive", err)
	}
	if limit <= 0 || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ds, err := s.receive(ctx, limit)
	s.failed = err != nil
	return ds, s.failure("receive", err)
}

func (s *source) receive(ctx context.Context, limit int) ([]backend.Delivery, error) {
	if s.isDue() {
		ds, err := s.takeBack(ctx, min(limit, maxSweep))
		if err != nil || len(ds) > 0 {
			return ds, err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ds, err := s.takeNew(ctx, limit, !s.failed)
	if isGone(err) && !s.closed.Load() {
		// What was waited on was destroyed; it may have been created again.
		ds, err = s.takeNew(ctx, limit, false)
	}
	return ds, err
}

// takeBack takes what comes back.
func (s *source) takeBack(ctx context.Context, limit int) ([]backend.Delivery, error) {
	c := &call{script: &takeScript, reply: s.batch.reply.empty()}
	c.args = append(takeScript.args(s.stream, s.delayed, sweptKey(s.delayed)), s.config.Group, s.name, limit, millis(s.config.Lease), s.turn, s.after)
	s.reader.send(ctx, grace, c)
	s.batch.reply = c.reply
	if c.err != nil {
		return nil, c.err
	}
	wait, err := s.readTaken()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err)
	}
	next := time.Now().Add(sweepEvery)
	switch {
	case len(s.batch.entries) > 0:
		next = time.Time{} // there may be more
	case wait >= 0:
		next = earlier(next, time.Now().Add(wait))
	}
	s.mu.Lock()
	s.sweep = next
	s.mu.Unlock()
	return s.batch.deliveries(s), nil
}

// readTaken reads the reply of the script, and when to run it again.
func (s *source) readTaken() (wait time.Duration, err error) {
	p := s.batch.reply.parse()
	p.arrayOf(4)
	wait = time.Duration(p.integer()) * time.Millisecond
	s.turn = p.integer()
	s.after = string(p.bulk())
	s.batch.readTaken(&p)
	return wait, p.end()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// takeNew takes what is new, and waits for it until the script is to be run.
func (s *source) takeNew(ctx context.Context, limit int, wait bool) ([]backend.Delivery, error) {
	c := &call{reply: s.batch.reply.empty()}
	c.args = append(make([]any, 0, 11), "xreadgroup", "group", s.config.Group, s.name, "count", limit)
	if wait {
		c.args = append(c.args, "block", s.wait())
		defer s.wake()
		stop := context.AfterFunc(ctx, s.unblock)
		defer stop()
	}
	c.args = append(c.args, "streams", s.stream, ">")
	if wait {
		s.learnID(ctx)
	}
	s.reader.send(ctx, grace, c)
	s.batch.reply = c.reply
	if c.err != nil {
		return nil, c.err
	}
	p := s.batch.reply.parse()
	s.batch.readNew(&p)
	if err := p.end(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err)
	}
	return s.batch.deliveries(s), nil
}

// isDue reports whether the script is to be run.
func (s *source) isDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.sweep)
}

// wait begins to wait and returns for how long, in milliseconds. Zero would be
// for ever.
func (s *source) wait() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = true
	return min(max(millis(time.Until(s.sweep)), 1), millis(block))
}

func (s *source) wake() {
	s.mu.Lock()
	s.waits = false
	s.mu.Unlock()
}

// dueIn makes the script run when something falls due, if that is earlier than
// it would have run.
func (s *source) dueIn(d time.Duration) {
	at := time.Now().Add(d)
	s.mu.Lock()
	sooner := at.Before(s.sweep)
	if sooner {
		s.sweep = at
	}
	waits := s.waits
	s.mu.Unlock()
	if sooner && waits {
		s.unblock()
	}
}

// learnID finds out how the server calls the reader's connection, if it is a new
// one. A server that does not say is asked again with the next connection.
func (s *source) learnID(ctx context.Context) {
	dial := s.reader.dials.Load()
	s.mu.Lock()
	known := dial > 0 && s.dial == dial
	s.mu.Unlock()
	if known {
		return
	}
	var id int64
	s.reader.do(ctx, 0, func() {
		if node, err := nodeOf(ctx, s.reader.client, s.stream); err == nil {
			id, _ = node.ClientID(ctx).Result() // without it, a read is not woken
		}
	})
	s.mu.Lock()
	s.id, s.dial = id, s.reader.dials.Load()
	s.mu.Unlock()
}

// unblock ends the wait of a read that is under way, if it can.
func (s *source) unblock() {
	s.mu.Lock()
	id := s.id
	waits := s.waits && s.dial == s.reader.dials.Load() // a server that was restarted gives ids anew
	s.mu.Unlock()
	if id == 0 || !waits {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace) //nolint:forbidigo // it is sent when the read's context is done
	defer cancel()
	w, err := s.backend.wires.get(ctx)
	if err != nil {
		return
	}
	defer s.backend.wires.put(w)
	w.do(ctx, 0, func() {
		if node, err := nodeOf(ctx, w.client, s.stream); err == nil {
			_ = node.ClientUnblock(ctx, id).Err() // at worst the read ends a little later
		}
	})
}

// nodeOf returns the client of the server that has a key.
func nodeOf(ctx context.Context, client redis.UniversalClient, key string) (*redis.Client, error) {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, key)
	}
	return client.(*redis.Client), nil
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
	close(s.ended)
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
