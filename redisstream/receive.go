package redisstream

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

const (
	maxTake         = 100                    // most deliveries of one run of take.lua; other clients wait for the run
	cancelGrace     = 900 * time.Millisecond // longest wait of a read for its answer after its context is done
	replyBytes      = 512 << 10              // wanted size in bytes of one reply with entries
	idleServerDelay = 2 * time.Millisecond   // after this time without an answer the server is idle, see unblock
	minRead         = 8                      // a read asks for 8 entries at least, even if entries are large, unless its bound in bytes is small
	initialSize     = 32 << 10               // size of an entry that a source expects before its first one
	returnTimeout   = 500 * time.Millisecond // longest time in which a read gives back the messages that do not fit
)

// A receipt is the Token of a delivery.
type receipt struct {
	*readBatch
	count   int         // the delivery count on the server when it was delivered; fenced scripts compare it
	settled bool        // take.lua found that the entry has no body, and acknowledged it
	unsure  atomic.Bool // an Ack of the delivery had no answer
}

// A handOut has the fields that are equal in all receipts of one read.
type readBatch struct {
	source   *source
	leaseEnd time.Time // before this moment no other member receives the deliveries
	resets   int       // value of source.life
}

// countBase splits the delivery count of the server. The remainder is the attempt. The
// quotient is the number of the run of take.lua that made the delivery
// (lua/with/count.lua).
const countBase = 1_000_000

// Receive implements [backend.Source].
func (s *source) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	s.receiving.Lock()
	defer s.receiving.Unlock()
	if s.closed.Load() {
		return nil, s.failure("receive", backend.ErrClosed)
	}
	if limit <= 0 || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !s.backend.readers.acquire(s) {
		return nil, s.failure("receive", backend.ErrClosed)
	}
	defer s.backend.readers.release(s)
	s.loan.Return()
	s.receivedAt = time.Now()
	ds, err := s.receive(ctx, limit, maxBytes)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, backend.ErrUnknownOutcome) {
		return ds, ctx.Err() // nothing was sent
	}
	s.lastFailed = err != nil
	s.recordRead(ds, err)
	return ds, s.failure("receive", err)
}

// note remembers the highest position received, and whether a reply was lost. After a lost
// reply, the next run of take.lua gives back its messages. Otherwise they would be
// redelivered only after their lease, behind newer messages.
func (s *source) recordRead(ds []backend.Delivery, err error) {
	for i := range ds {
		if ds[i].Position > string(s.highest) {
			s.highest = append(s.highest[:0], ds[i].Position...)
		}
	}
	if errors.Is(err, backend.ErrUnknownOutcome) && s.lostRun == 0 {
		s.lostRun, s.sweepAfter = s.runNumber, ""
		s.advanceTake(time.Time{}, false)
	}
}

// receive receives redelivered messages, or else new ones. A run of take.lua that delivers
// nothing may ask for another run: it had too many delayed messages to sort all of them, or
// gave back messages of a lost reply.
func (s *source) receive(ctx context.Context, limit int, maxBytes int64) (ds []backend.Delivery, err error) {
	left, _ := s.untilTake(false)
	for more := left <= 0; more && ctx.Err() == nil; {
		if ds, more, err = s.runTake(ctx, min(limit, maxTake), maxBytes); err != nil || len(ds) > 0 {
			return ds, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ds, err = s.takeNew(ctx, limit, maxBytes, !s.lastFailed)
	if errors.Is(err, backend.ErrGone) && !s.closed.Load() && ctx.Err() == nil {
		// The stream or the group was deleted during the wait. It may exist again.
		ds, err = s.takeNew(ctx, limit, maxBytes, false)
	}
	if maxBytes > 0 && (s.lastBytes > maxBytes || s.options.Flat) {
		if n := fitCount(ds, maxBytes); n < len(ds) {
			err = returnAfter(ctx, s, ds[n-1].Position)
			ds = ds[:n]
		}
	}
	return ds, err
}

// fitting returns how many of the first deliveries of ds have at most maxBytes together. It
// counts the first one even if it is larger.
func fitCount(ds []backend.Delivery, maxBytes int64) int {
	for i := range ds {
		if maxBytes -= int64(ds[i].Size()); maxBytes < 0 {
			return max(i, 1)
		}
	}
	return len(ds)
}

// returnAfter gives back the new messages after position, as after a lost reply. XREADGROUP
// has no bound in bytes. If the call fails, the next Receive gives them back.
func returnAfter(ctx context.Context, s *source, position string) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), returnTimeout)
	defer cancel()
	s.highest = append(s.highest[:0], position...)
	s.lostRun, s.sweepAfter = s.runNumber, ""
	s.advanceTake(time.Time{}, false)
	for s.lostRun > 0 && err == nil {
		_, _, err = s.runTake(ctx, 0, 0)
	}
	return err
}

// runTake runs take.lua one time. more means that the script asks for another run without a
// wait.
func (s *source) runTake(ctx context.Context, most int, maxBytes int64) (ds []backend.Delivery, more bool, err error) {
	start, bytesLeft := time.Now(), int64(replyBytes)
	if maxBytes > 0 {
		bytesLeft = min(bytesLeft, maxBytes)
	}
	keys, own := s.incarnation.takeArgs([]string{s.stream, s.delayed, sweepKey(s.delayed), pauseKey(s.delayed)}, start)
	c := takeScript.call(keys, append([]any{
		s.config.Group, s.name, most, millis(s.config.Lease), s.sweepOwner, s.sweepAfter, bytesLeft, s.runNumber, s.lostRun, bytes.TrimLeft(s.highest, "abcdef"),
	}, own...)...)
	s.scheduleTake(start.Add(blockTime))
	s.send(ctx, c)
	c.arrayOf(5)
	wait, ends := time.Duration(c.integer())*time.Microsecond, c.integer() == 1
	turn, after := c.integer(), string(c.bulk())
	ds = s.deliveries(&c.parser, true)
	if err := c.end(); err != nil {
		s.advanceTake(time.Time{}, false)
		return nil, false, err
	}
	s.sweepOwner, s.sweepAfter = turn, after
	s.runNumber++
	if s.sweepAfter == "" {
		s.lostRun = 0
	}
	if len(ds) > 0 {
		wait = 0 // more messages may be due
	}
	s.advanceTake(start.Add(wait), ends) // the script knows of no message that is due before
	return ds, wait == 0, nil
}

// takeNew receives new messages, by XREADGROUP: {{stream, {{id, fields}, …}}}, or nil. If
// wait is set and there are none, it waits for them until the next run of take.lua. It asks
// for as many as probably have at most maxBytes together.
func (s *source) takeNew(ctx context.Context, limit int, maxBytes int64, wait bool) ([]backend.Delivery, error) {
	// redis-server makes the whole reply before it sends any part, and serves no other client
	// meanwhile. So the reply must not be too large.
	count := min(limit, max(minRead, replyBytes/max(s.meanSize, 1)))
	if maxBytes > 0 {
		count = int(min(int64(count), max(1, maxBytes/max(s.maxSize, 1))))
	}
	args := append(make([]any, 0, 11), "xreadgroup", "group", s.config.Group, s.name, "count", count)
	if wait {
		left, ends := s.untilTake(true)
		defer s.untilTake(false)
		if left > 0 { // a block of 0 would wait without end, and a short one for up to 100 ms
			args = append(args, "block", millis(left))
		}
		if left > 0 && ends {
			defer time.AfterFunc(left+idleServerDelay, s.unblock).Stop()
		}
	}
	c := &call{args: append(args, "streams", s.stream, ">")}
	latest := s.incarnation.markQuery()
	s.send(ctx, c, latest...)
	ds := s.newDeliveries(&c.parser)
	if err := c.end(); err != nil {
		return nil, err
	}
	if len(latest) > 0 && s.incarnation.superseded(latest[0]) {
		_, _, err := s.runTake(ctx, 1, 0) // it gives ds back, and returns ErrReplaced
		return nil, err
	}
	return ds, nil
}

// ask makes a call on the connection of the member, and more calls in the same round trip.
// The reply to c is valid until the next ask, which uses its memory again.
func (s *source) send(ctx context.Context, c *call, more ...*call) {
	c.reply = s.reply.next()
	s.reader.send(ctx, append([]*call{c}, more...)...)
	s.reply = c.reply
}

// newDeliveries reads the reply of XREADGROUP.
func (s *source) newDeliveries(p *parser) []backend.Delivery {
	if p.array() <= 0 {
		return nil
	}
	p.arrayOf(2)
	p.bulk()
	ds := s.deliveries(p, false)
	if len(ds) > 0 && ds[0].Position <= string(s.highest) {
		ds[0].Token.(*receipt).resets = s.recordReset(ds[0].Position)
	}
	return ds
}

// beginAgain records that the group was reset, because it delivers a message as new that the
// member has received before. The server cannot tell the two deliveries of this message
// apart, so outlived refuses the deliveries of the earlier life.
func (s *source) recordReset(position string) (life int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets++
	s.resetAt = strings.Clone(position)
	return s.resets
}

// outlived reports whether the group began again after the delivery of d, at d or before it.
func (s *source) predatesReset(d *backend.Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.Token.(*receipt).resets < s.resets && d.Position >= s.resetAt
}

// deliveries reads entries: {{id, count, fields}, …} if counted, which is the form of
// take.lua, or else {{id, fields}, …}. The strings of the deliveries are in new memory.
func (s *source) deliveries(p *parser, counted bool) []backend.Delivery {
	n, size := max(p.array(), 0), len(p.rest)
	if n == 0 {
		return nil
	}
	largest, left := 0, size
	var mem slab.Slab
	mem.Expect(0, 0, size)
	ds := s.loan.Lend(s.loan.Room(nil, n)[:n])
	receipts, from := make([]receipt, n), &readBatch{s, s.receivedAt.Add(s.config.Lease), s.resets} // only Receive changes life
	entries := entryReader{s.config.Topic, s.options}
	for i := range ds {
		r, d := &receipts[i], &ds[i]
		*d = backend.Delivery{Token: r, Redelivered: counted}
		r.readBatch = from
		r.count, d.Err = entries.read(p, &mem, &d.Message, counted, n-i)
		d.Attempt = r.count % countBase
		r.settled = counted && d.Err == errBodyGone //nolint:errorlint // it is not wrapped
		largest, left = max(largest, left-len(p.rest)), len(p.rest)
	}
	s.lastBytes = int64(size - left)
	s.meanSize, s.maxSize = int(s.lastBytes)/n, max(s.maxSize/2, int64(largest))
	return ds
}

// untilSweep notes whether a read waits for new messages. It returns the time until the next
// run of take.lua, and whether a delay ends then.
func (s *source) untilTake(waits bool) (left time.Duration, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = waits
	return time.Until(s.nextTake), s.delayEnds
}

// sweepFrom sets the time of the next run of take.lua, when a run begins. A Delay during
// the run may be too late for this run, and then makes the next run earlier by dueIn.
func (s *source) scheduleTake(next time.Time) {
	s.mu.Lock()
	s.nextTake, s.delayEnds = next, false
	s.mu.Unlock()
}

// sweepBy makes the next run of take.lua begin no later than at, when a delay may end. It
// returns true if this made the run earlier while a read waits. The caller must then wake
// the read at that time.
func (s *source) advanceTake(at time.Time, ends bool) (waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.Before(s.nextTake) {
		return false
	}
	s.nextTake, s.delayEnds = at, ends
	return s.blocked
}

// dueIn makes take.lua run after d, because a delay of d begins now.
func (s *source) wakeAfter(d time.Duration) {
	if !s.advanceTake(time.Now().Add(d), true) {
		return
	}
	if d <= 0 {
		s.unblock()
		return
	}
	time.AfterFunc(d, func() {
		if left, waits := s.timeLeft(); waits && left <= 0 {
			s.unblock()
		}
	})
}

// left returns the time until the next run of take.lua, and whether a read waits.
func (s *source) timeLeft() (left time.Duration, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.nextTake), s.blocked
}

// waiting returns the id of the connection to node on which a read waits. It returns 0 if
// no read waits, or if the id is not known.
func (s *source) blockedConn(node *redis.Client) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.blocked || s.reader == nil {
		return 0
	}
	return s.reader.id(node)
}

const unblockAgain = time.Millisecond // time until the next attempt, if the server answered that no read waits

// unblock ends the wait of a read, by CLIENT UNBLOCK. An idle server ends a wait by itself up
// to 100 ms late, because it looks at waits only when it has a command or ten times a second.
// The server may get this request
// before the read. It then answers that no read waits, and unblock sends the request again
// until the read has ended. Without success the read ends by itself a little later.
func (s *source) unblock() {
	ctx, cancel := context.WithTimeout(context.Background(), blockTime) //nolint:forbidigo // the context of the read may be done
	defer cancel()
	node, err := s.backend.node(ctx, s.stream)
	if err != nil || s.blockedConn(node) == 0 {
		return
	}
	_ = s.backend.with(ctx, func(sess *session) error {
		return sess.do(ctx, func(ctx context.Context) error {
			for id := s.blockedConn(node); id != 0 && err == nil; id = s.blockedConn(node) {
				var woken int64
				if woken, err = node.ClientUnblock(ctx, id).Result(); woken > 0 {
					break
				}
				select {
				case <-ctx.Done():
				case <-time.After(unblockAgain):
				}
			}
			return err
		})
	})
}
