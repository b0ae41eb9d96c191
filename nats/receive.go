package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A puller sends the pulls of a source, its requests for messages, and keeps their state.
//
// A Receive sends one pull after another, and each ends by itself after half a second at most.
// That way no message is on its way between two calls of Receive, and none waits in a buffer, where
// no call would extend its lease.
type puller struct {
	replyInbox
	loan slab.Loan     // memory of the deliveries that the last Receive has lent
	msgs []*natsgo.Msg // buffer of pullCall.msgs

	count  uint64        // number of pulls so far
	lost   chan struct{} // closed when the connection of the last Receive is lost
	unsure bool          // deliveries may have been lost, or forgotten by the server
	since  time.Time     // when that became so
	missed int           // how many messages failed pulls may have lost, at most

	batch int           // most messages of one pull
	bytes int           // most bytes that the consumer lets a pull ask for; 0 means any number
	block time.Duration // longest wait of one pull

	size    int // bytes of the largest recent message, as the server counts them; 0 means not known
	largest int // bytes of the largest message for long, plus a margin
}

const (
	maxBatch          = 1024                   // most messages of one pull
	maxPullBytes      = 1 << 20                // most bytes of one pull, if each message is as large as puller.size
	assumedSize       = 32 << 10               // size that a pull without a bound expects of messages before the first one
	maxPullWait       = 500 * time.Millisecond // longest wait of a pull for new messages
	leaseShare        = 8                      // a pull waits for 1/8 of a lease at most, because leases count from its beginning
	sizeMargin        = 16                     // 1/16 above the size of a message: puller.largest shrinks slowly, and a redelivery has longer numbers
	deliveriesPerSlab = 64                     // most deliveries that share memory: holding one of them keeps all
	pullSlack         = 300 * time.Millisecond // a pull that takes this much longer than its wait is overdue
	overdueGrace      = 2 * time.Second        // an overdue pull fails after this much longer
	drainDelay        = 40 * time.Millisecond  // how long messages that are due may take to arrive, before a cancelled pull is drained
	drainTimeout      = 900 * time.Millisecond // longest wait for the end of the drain
)

// applyLimits makes later pulls keep the limits of the consumer.
func (p *puller) applyLimits(limits jetstream.ConsumerConfig) {
	if limits.MaxRequestBatch > 0 {
		p.batch = min(p.batch, limits.MaxRequestBatch)
	}
	p.bytes = limits.MaxRequestMaxBytes
	if limits.MaxRequestExpires > 0 {
		p.block = min(p.block, limits.MaxRequestExpires)
	}
}

// request returns a pull for at most limit messages of at most left bytes together; a left of
// zero or less is no bound. alone says that a single message may be larger than left.
//
// The batch is kept small enough that its messages should fit, judging by the largest this member
// has seen recently. A redelivered message that didn't fit would arrive out of order. That's why
// the first pull with a byte limit asks for a single message. The limit maxPullBytes is not sent
// to the server.
func (p *puller) request(limit int, left int64, alone bool) pullRequest {
	req := pullRequest{NoWait: true, Batch: min(limit, p.batch, max(1, maxPullBytes/cmp.Or(p.size, assumedSize)))}
	switch {
	case left <= 0:
		return req
	case p.largest == 0:
		req.Batch = 1
	default:
		req.Batch = int(min(int64(req.Batch), max(1, left/int64(p.largest))))
	}
	if req.Batch > 1 || !alone {
		req.MaxBytes = int(min(left, math.MaxInt32))
		if p.bytes > 0 {
			req.MaxBytes = min(req.MaxBytes, p.bytes)
		}
	}
	return req
}

// observeSizes updates size and largest after a pull.
func (p *puller) observeSizes(msgs []*natsgo.Msg) {
	if len(msgs) > 0 {
		p.size /= 2
		p.largest -= p.largest / 1024
	}
	for _, m := range msgs {
		p.size = max(p.size, m.Size())
	}
	p.largest = max(p.largest, p.size+p.size/sizeMargin)
}

// Receive implements [backend.Source].
func (s *source) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := s.unusable(); err != nil {
		return nil, s.failure("receive", err)
	}
	if limit <= 0 || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.puller.loan.Return()
	ds, err := s.receive(ctx, limit, maxBytes)
	s.failed = err != nil && !errors.Is(err, ctx.Err()) && !errors.Is(err, backend.ErrPaused)
	if errors.Is(err, backend.ErrUnavailable) {
		s.puller.markUnsure()
	}
	if err != nil && errors.Is(err, ctx.Err()) {
		return ds, ctx.Err()
	}
	return ds, s.failure("receive", err)
}

func (s *source) receive(ctx context.Context, limit int, maxBytes int64) (ds []backend.Delivery, err error) {
	if err := s.pause.check(ctx, s, false); err != nil {
		return nil, err
	}
	if lost := s.backend.sender.connection(); lost != s.puller.lost {
		s.puller.lost = lost
		s.puller.markUnsure()
	}
	if s.puller.unsure { // ask before the server can redeliver messages that it has forgotten
		if err := s.recover(ctx); err != nil {
			return nil, err
		}
	}
	for range 6 {
		ds, err = s.pull(ctx, limit, maxBytes)
		isGone := errors.Is(err, backend.ErrGone)
		if isGone {
			s.consumerDeleted()
		}
		switch {
		case len(ds) == 0 && err == nil:
			return nil, s.pause.check(ctx, s, true)
		case len(ds) > 0, !isGone && !errors.Is(err, errPullRefused):
			return ds, err
		}
		if !sleep(ctx, s.ended, 50*time.Millisecond) { // the cause may pass
			return nil, errors.Join(ctx.Err(), s.unusable())
		}
		s.failed = true // makes the next pull not wait
	}
	return ds, err
}

// A pullRequest asks a consumer for the messages that are due. If none is due, the consumer
// waits for the first one, for at most Expires. With NoWait and no Expires it does not wait.
type pullRequest struct {
	Batch    int           `json:"batch"`
	MaxBytes int           `json:"max_bytes,omitempty"`
	Expires  time.Duration `json:"expires,omitempty"`
	NoWait   bool          `json:"no_wait,omitempty"`
}

// errExceeds means that the next message was larger than the bytes left in a pull.
var errExceeds = errors.New("the next message does not fit")

// pull fetches messages that are due. After a redelivered message it continues until no message
// is due or the next one does not fit, because several messages may be redelivered at the same
// time, and the bus relies on Receive to leave none that is due.
func (s *source) pull(ctx context.Context, limit int, maxBytes int64) (ds []backend.Delivery, err error) {
	req, left := s.puller.request(limit, maxBytes, true), maxBytes
	if !s.failed {
		req.Expires = s.puller.block
	}
	for {
		had := len(ds)
		ds, err = s.pullOnce(ctx, ds, req)
		for i := range ds[had:] {
			left -= int64(ds[had+i].Size())
		}
		switch {
		case errors.Is(err, errExceeds) && len(ds) > 0:
			return ds, nil
		case errors.Is(err, errExceeds) && ctx.Err() == nil:
			req = pullRequest{Batch: 1, NoWait: true} // the message is larger than the whole bound, and comes alone
			continue
		}
		more := len(ds) > 0 && ds[len(ds)-1].Attempt > 1 && len(ds)-had == req.Batch && len(ds) < limit
		if !more || err != nil || ctx.Err() != nil || maxBytes > 0 && left < int64(s.puller.largest) {
			return ds, err
		}
		req = s.puller.request(limit-len(ds), left, false)
	}
}

// pullOnce sends one pull and appends its messages to ds. Even if ctx ends first, it waits for
// the end of the pull, because the server has leased the messages that it has sent. After an
// error the next pull uses a new inbox; a message that still arrives in the old one is lost,
// see source.recover.
func (s *source) pullOnce(ctx context.Context, ds []backend.Delivery, req pullRequest) ([]backend.Delivery, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return ds, err
	}
	p := &s.puller
	p.ensureInbox()
	p.count++
	c := pullCall{
		source: s, expected: req.Batch, bytesLeft: req.MaxBytes, reply: p.inbox.prefix + strconv.FormatUint(p.count, 36),
		sentAt: time.Now(), leasesFrom: leaseClock.now(), msgs: p.msgs[:0],
	}
	p.sent = p.sender.send(p.inbox, []outgoing{{subject: s.pullSubject, reply: c.reply, data: body}}, p.lost)
	if err = c.collect(ctx, req.Expires+pullSlack); err == nil && c.end != nil {
		err = s.statusError(ctx, c.sentAt, c.end)
	}
	if err == nil && c.exceeds {
		err = errExceeds
	}
	if err != nil && !errors.Is(err, errExceeds) {
		unsent := p.sender.withdraw(p.sent)
		for len(p.inbox.msgs) > 0 && !c.done() {
			c.add(<-p.inbox.msgs)
		}
		p.closeInbox()
		if !unsent {
			p.missed += req.Batch - len(c.msgs)
			p.markUnsure()
		}
	}
	for some := range slices.Chunk(c.msgs, deliveriesPerSlab) {
		ds = s.deliveries(ds, some, c.leasesFrom)
	}
	p.observeSizes(c.msgs)
	clear(c.msgs) // let only the deliveries keep these messages alive
	p.msgs = c.msgs
	return ds, err
}

// A pullCall is one pull while its messages arrive.
type pullCall struct {
	source     *source
	expected   int // how many messages to expect
	bytesLeft  int // bytes of the pull that are left
	reply      string
	sentAt     time.Time
	leasesFrom int64 // the same by the lease clock: no lease began earlier

	msgs    []*natsgo.Msg
	exceeds bool        // the next message was larger than left
	end     *natsgo.Msg // status message that ended the pull; nil if its batch was filled
}

func (c *pullCall) done() bool { return len(c.msgs) >= c.expected || c.end != nil }

// add handles a message. A status message ends the pull that it names. The server sends none if
// the messages use up exactly the bytes of the pull.
func (c *pullCall) add(m *natsgo.Msg) {
	switch {
	case m.Reply != "":
		c.msgs = append(c.msgs, m)
		if c.bytesLeft -= m.Size(); c.bytesLeft == 0 {
			c.expected = len(c.msgs)
		}
	case m.Subject != c.reply:
	case c.isFull(m):
	default:
		c.end = m
	}
}

// isFull handles the status messages that end a pull with a limit in bytes, and returns false
// for others. In a cluster, such a message may overtake the last messages of its pull, so it
// says how many there are.
func (c *pullCall) isFull(m *natsgo.Msg) bool {
	text := m.Header.Get("Description")
	fits := text == "Batch Completed"
	missing, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if !fits && text != "Message Size Exceeds MaxBytes" || err != nil {
		return false
	}
	c.expected, c.exceeds = max(c.expected-missing, len(c.msgs)), !fits
	return true
}

// errSilence means that a pull did not end in time.
var errSilence = fmt.Errorf("%w: a pull has not ended in time", backend.ErrUnavailable)

// collect gathers messages until the pull ends. If none comes for the time pause, it asks the
// server why, and waits once more.
func (c *pullCall) collect(ctx context.Context, pause time.Duration) error {
	s := c.source
	for doubted := false; !c.done(); {
		m, err := s.puller.wait(ctx, pause)
		failed, notSent := errors.AsType[backend.BatchError](err)
		switch {
		case m != nil:
			c.add(m)
			doubted = false // the connection is slow but alive
		case notSent:
			return classOf(ctx, failed[0], false)
		case errors.Is(err, natsgo.ErrPermissionViolation):
			if concerns(err, s.pullSubject) || concerns(err, s.puller.inbox.prefix+"*") {
				return fmt.Errorf("%w: %w", backend.ErrDenied, err)
			}
		case err != nil && errors.Is(err, ctx.Err()):
			return c.cancel(ctx)
		case err != nil:
			return classOf(ctx, err, false)
		case doubted:
			return errSilence
		default:
			doubted, pause = true, overdueGrace
			if err := s.diagnose(ctx, c.sentAt, "a pull has not ended in time"); !errors.Is(err, backend.ErrUnavailable) {
				return err
			}
		}
	}
	return nil
}

// cancel ends a pull whose caller has left. It waits for the pull to end by itself until the
// pull is as old as drainDelay, and then drains the inbox, which makes the server end the pull.
// A message that the server sends during the drain is redelivered, as another attempt.
func (c *pullCall) cancel(ctx context.Context) error {
	ri := &c.source.puller.replyInbox
	if ri.sender.withdraw(ri.sent) {
		return ctx.Err()
	}
	var drained <-chan struct{}
	pause := drainDelay
	if len(c.msgs) == 0 { // if nothing has arrived yet, nothing is under way for an old pull
		pause -= time.Since(c.sentAt)
	}
	ri.timer.Reset(max(pause, 0))
	for !c.done() {
		select {
		case m := <-ri.inbox.msgs:
			c.add(m)
			continue
		case <-ri.timer.C:
			if drained == nil {
				drained = ri.drain()
				ri.timer.Reset(drainTimeout)
				continue
			}
		case <-drained:
		case <-ri.sent.lost:
		case <-ri.ended:
		}
		return ctx.Err()
	}
	if drained != nil {
		return ctx.Err() // an error, because a drained inbox cannot be used again
	}
	return nil
}

// errPullRefused means that a pull failed, but the next one may succeed.
var errPullRefused = fmt.Errorf("%w: a pull was refused", backend.ErrUnavailable)

// statusError returns the error of a pull that the status message end has ended, or nil if it
// ended normally. asked is when the pull was sent.
func (s *source) statusError(ctx context.Context, asked time.Time, end *natsgo.Msg) error {
	switch status, text := end.Header.Get("Status"), end.Header.Get("Description"); {
	case status == "408" && text == "Requests Pending": // the pulls of other members are waiting already
		sleep(ctx, s.ended, 20*time.Millisecond)
		return nil
	case status == "404", status == "408": // no messages, or the pull expired
		return nil
	case status == "503": // the consumer is deleted, or has no leader
		if err := s.diagnose(ctx, asked, unservedText); errors.Is(err, backend.ErrGone) {
			return err
		}
		return fmt.Errorf("%w: %s", errPullRefused, unservedText)
	case status != "409":
		return fmt.Errorf("%w: status %s %s", backend.ErrRefused, status, text)
	case strings.HasPrefix(text, "Consumer Deleted"):
		return fmt.Errorf("%w: %s", backend.ErrGone, text)
	case strings.HasPrefix(text, "Leadership Change"), strings.HasPrefix(text, "Server Shutdown"), strings.HasPrefix(text, "Exceeded MaxWaiting"):
		return fmt.Errorf("%w: %s", backend.ErrUnavailable, text)
	case strings.HasPrefix(text, "Exceeded MaxRequest"):
		info, err := s.info(ctx)
		if err == nil {
			s.puller.applyLimits(info.Config)
		}
		return fmt.Errorf("%w: %s", errPullRefused, text)
	default:
		return fmt.Errorf("%w: %s", backend.ErrRefused, text)
	}
}
