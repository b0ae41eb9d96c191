package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// A source is one member of a group. Members of a group share its consumer.
//
// Receive sends one pull that ends by itself: it brings what is there or, after
// half a second at most, nothing. So nothing is on its way between calls, and
// nothing ages in a buffer where nobody keeps its lease.
type source struct {
	backend *Backend
	config  backend.Config
	next    string             // the subject of pulls
	broken  chan natsgo.Status // gets something when the connection is lost

	closed atomic.Bool
	ended  chan struct{} // closed with it

	reading sync.Mutex // held during Receive
	inbox   string
	msgs    chan *natsgo.Msg
	sub     *natsgo.Subscription // nil without an inbox
	failed  bool                 // the last Receive did
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	s, err := b.attach(ctx, c)
	if err != nil {
		return nil, b.failure("attach", c.Topic+"/"+c.Group, classOf(ctx, err, false))
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
	if err := b.consumer(ctx, c); err != nil {
		return nil, err
	}
	s := &source{
		backend: b, config: c, ended: make(chan struct{}),
		next: "$JS.API.CONSUMER.MSG.NEXT." + b.streamName(c.Topic) + "." + consumerName(c.Group),
	}
	s.broken = b.conn.StatusChanged(natsgo.DISCONNECTED, natsgo.RECONNECTING, natsgo.CLOSED)
	b.mu.Lock()
	closed := b.closed.Load()
	if !closed {
		b.sources[s] = struct{}{}
	}
	b.mu.Unlock()
	if closed {
		s.close()
		return nil, backend.ErrClosed
	}
	return s, nil
}

// consumer makes sure of a group. Its lease is the longest that a member has
// asked for: raised, never lowered.
func (b *Backend) consumer(ctx context.Context, c backend.Config) error {
	want := jetstream.ConsumerConfig{
		Durable:       consumerName(c.Group),
		Description:   "group " + c.Group + " of an event bus",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.Lease,
		MaxDeliver:    -1,
		MaxAckPending: -1,
		MaxWaiting:    4096,
		ReplayPolicy:  jetstream.ReplayInstantPolicy,
	}
	if err := begin(&want, c.Start); err != nil {
		return err
	}
	stream := b.streamName(c.Topic)
	for range 2 {
		if err := b.ensure(ctx, c.Topic); err != nil {
			return err
		}
		if err := b.beyond(ctx, c); err != nil {
			return err
		}
		err := b.makeConsumer(ctx, stream, want)
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		b.forget(c.Topic)
	}
	return fmt.Errorf("%w: the stream is deleted again and again", backend.ErrGone)
}

func (b *Backend) makeConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) error {
	got, err := b.js.Consumer(ctx, stream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = b.js.CreateConsumer(ctx, stream, want)
		if !errors.Is(err, jetstream.ErrConsumerExists) {
			return err
		}
		got, err = b.js.Consumer(ctx, stream, want.Durable)
	}
	if err != nil {
		return err
	}
	has := got.CachedInfo().Config
	if has.AckPolicy != jetstream.AckExplicitPolicy {
		return fmt.Errorf("%w: consumer %s: ack policy is %v, must be %v", backend.ErrRefused, want.Durable, has.AckPolicy, jetstream.AckExplicitPolicy)
	}
	if has.AckWait >= want.AckWait && has.MaxDeliver == -1 && has.MaxAckPending == -1 && len(has.BackOff) == 0 {
		return nil
	}
	has.AckWait = max(has.AckWait, want.AckWait)
	has.MaxDeliver, has.MaxAckPending, has.BackOff = -1, -1, nil
	_, err = b.js.UpdateConsumer(ctx, stream, has)
	return err
}

// begin sets where a new consumer begins.
func begin(c *jetstream.ConsumerConfig, start backend.Start) error {
	switch start {
	case backend.StartEarliest:
		c.DeliverPolicy = jetstream.DeliverAllPolicy
		return nil
	case backend.StartLatest:
		c.DeliverPolicy = jetstream.DeliverNewPolicy
		return nil
	}
	after, ok := start.After()
	if !ok {
		return fmt.Errorf("%w: start %q", backend.ErrRefused, start)
	}
	seq, err := parsePosition(after)
	if err != nil {
		return err
	}
	c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, seq+1
	return nil
}

// beyond refuses a position that the stream has not come to yet.
func (b *Backend) beyond(ctx context.Context, c backend.Config) error {
	after, ok := c.Start.After()
	if !ok {
		return nil
	}
	seq, err := parsePosition(after)
	if err != nil {
		return err
	}
	s, err := b.js.Stream(ctx, b.streamName(c.Topic))
	if err != nil {
		return err
	}
	if last := s.CachedInfo().State.LastSeq; seq > last {
		return fmt.Errorf("%w: position %s is beyond the end of the stream, %s", backend.ErrRefused, after, position(last))
	}
	return nil
}

const maxPull = 512

// A pull is what is asked of a consumer: what is there, or what comes first
// within Expires.
type pull struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires,omitempty"`
	NoWait  bool          `json:"no_wait,omitempty"`
}

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
	ds, err := s.pull(ctx, min(limit, maxPull))
	for range 5 { // a group that is reset is gone for a moment
		if len(ds) > 0 || !errors.Is(err, backend.ErrGone) || !s.wait(ctx, 50*time.Millisecond) {
			break
		}
		s.failed = true
		ds, err = s.pull(ctx, min(limit, maxPull))
	}
	s.failed = err != nil
	return ds, s.failure("receive", err)
}

// wait reports whether nothing else ended it.
func (s *source) wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.ended:
	}
	return false
}

// pull makes one pull and waits for its end, whatever becomes of ctx: what the
// server has sent is leased. From a connection that does not answer it turns
// away, to a new inbox; what was on its way there comes back after its lease.
func (s *source) pull(ctx context.Context, limit int) ([]backend.Delivery, error) {
	for len(s.broken) > 0 {
		<-s.broken
	}
	if !s.backend.conn.IsConnected() {
		return nil, fmt.Errorf("%w: not connected", backend.ErrUnavailable)
	}
	if s.sub == nil {
		if err := s.listen(ctx); err != nil {
			return nil, err
		}
	}
	order := pull{Batch: limit, NoWait: true}
	if !s.failed {
		order.Expires = block
	}
	body, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	if err := s.backend.conn.PublishRequest(s.next, s.inbox, body); err != nil {
		return nil, classOf(ctx, err, false)
	}
	var got []*natsgo.Msg
	end, err := s.await(ctx, order, &got)
	if err != nil {
		s.hangUp()
		return s.deliveries(got), err
	}
	return s.deliveries(got), endOf(end)
}

// await gathers what a pull brings, until it ends. The message that ended it is
// nil if the pull was filled.
func (s *source) await(ctx context.Context, order pull, got *[]*natsgo.Msg) (end *natsgo.Msg, err error) {
	overdue := time.NewTimer(order.Expires + patience)
	defer overdue.Stop()
	done := ctx.Done()
	for len(*got) < order.Batch {
		select {
		case m := <-s.msgs:
			if m.Reply == "" {
				return m, nil
			}
			*got = append(*got, m)
		case <-done:
			done = nil
			overdue.Reset(grace)
		case <-overdue.C:
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, fmt.Errorf("%w: a pull has not ended in time", backend.ErrUnavailable)
		case <-s.broken:
			return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, errConnectionLost)
		case <-s.ended:
			return nil, backend.ErrClosed
		}
	}
	return nil, nil
}

// endOf is what the message that ended a pull means.
func endOf(m *natsgo.Msg) error {
	if m == nil {
		return nil
	}
	text := m.Header.Get("Description")
	switch status := m.Header.Get("Status"); status {
	case "404", "408": // no messages; or fewer than asked for, in time
		return nil
	case "503":
		return fmt.Errorf("%w: nobody serves the consumer", backend.ErrGone)
	case "409":
		switch {
		case strings.Contains(text, "Consumer Deleted"):
			return fmt.Errorf("%w: %s", backend.ErrGone, text)
		case strings.Contains(text, "Leadership Change"), strings.Contains(text, "Server Shutdown"):
			return fmt.Errorf("%w: %s", backend.ErrUnavailable, text)
		}
		return fmt.Errorf("%w: %s", backend.ErrRefused, text)
	default:
		return fmt.Errorf("%w: status %s %s", backend.ErrRefused, status, text)
	}
}

// listen makes a new inbox.
func (s *source) listen(ctx context.Context) error {
	msgs := make(chan *natsgo.Msg, 2*maxPull)
	inbox := s.backend.conn.NewInbox()
	sub, err := s.backend.conn.ChanSubscribe(inbox, msgs)
	if err != nil {
		return classOf(ctx, err, false)
	}
	s.inbox, s.msgs, s.sub = inbox, msgs, sub
	return nil
}

// hangUp leaves the inbox.
func (s *source) hangUp() {
	if s.sub != nil {
		_ = s.sub.Unsubscribe() // the connection may be closed
		s.sub = nil
	}
}

const grace = 900 * time.Millisecond

// A receipt is what a delivery's Token points to. The server fences nothing: who
// holds what is known here, by when it was received or extended.
type receipt struct {
	source *source
	reply  string

	mu      sync.Mutex
	until   time.Time // the lease may have passed after this
	settled bool
}

// held reports whether the delivery is still the holder's for certain. The caller
// holds mu.
func (r *receipt) held(now time.Time) bool { return !r.settled && now.Before(r.until) }

// deliveries returns messages as deliveries, whose leases began a moment ago.
func (s *source) deliveries(msgs []*natsgo.Msg) []backend.Delivery {
	if len(msgs) == 0 {
		return nil
	}
	ds := make([]backend.Delivery, len(msgs))
	receipts := make([]receipt, len(msgs))
	until := time.Now().Add(s.config.Lease)
	for i, m := range msgs {
		d := &ds[i]
		meta, err := metaOf(m.Reply)
		receipts[i].source, receipts[i].reply, receipts[i].until = s, m.Reply, until
		d.Topic, d.Attempt, d.Token = s.config.Topic, meta.delivered, &receipts[i]
		d.Position, d.Payload = position(meta.sequence), m.Data
		if err == nil {
			err = readHeader(&d.Message, m.Header)
		}
		d.Err = err
	}
	return ds
}

// A meta is what a reply subject tells:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
//
// or the same with domain and account behind ACK, and a token at the end.
type meta struct {
	delivered int
	sequence  uint64
}

func metaOf(reply string) (m meta, err error) {
	parts := strings.Split(reply, ".")
	at := 4
	if len(parts) >= 11 {
		at = 6
	}
	if len(parts) < at+2 || parts[0] != "$JS" || parts[1] != "ACK" {
		return m, fmt.Errorf("%w: %q is not the reply of a delivery", backend.ErrRefused, reply)
	}
	if m.delivered, err = strconv.Atoi(parts[at]); err == nil {
		m.sequence, err = strconv.ParseUint(parts[at+1], 10, 64)
	}
	return m, err
}

func (s *source) unusable() error {
	if s.closed.Load() || s.backend.closed.Load() {
		return backend.ErrClosed
	}
	return nil
}

func (s *source) failure(op string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) && !errors.Is(err, backend.ErrUnknownOutcome) && !errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	if s.closed.Load() {
		err = backend.ErrClosed
	}
	return s.backend.failure(op, s.config.Topic+"/"+s.config.Group, err)
}

// Close implements [backend.Source].
func (s *source) Close() error {
	s.close()
	return nil
}

func (s *source) close() {
	if s.closed.Swap(true) {
		return
	}
	close(s.ended)
	s.reading.Lock()
	defer s.reading.Unlock()
	s.hangUp()
	s.backend.conn.RemoveStatusListener(s.broken)
	s.backend.mu.Lock()
	delete(s.backend.sources, s)
	s.backend.mu.Unlock()
}
