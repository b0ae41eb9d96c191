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
	maxTake         = 100                    // deliveries of one run of take.lua, for which other clients wait
	cancelGrace     = 900 * time.Millisecond // how long a read waits for its reply once its context is done
	replyBytes      = 512 << 10              // target size of one reply with entries
	idleServerDelay = 2 * time.Millisecond   // without a reply for this long, the server is idle; see unblock
	minRead         = 8                      // entries that a read asks for even if entries are large, unless maxBytes is small
	initialSize     = 32 << 10               // assumed size of an entry before the first one has arrived
	returnTimeout   = 500 * time.Millisecond // how long a read may take to give back the messages that do not fit
)

// A receipt is the Token of a delivery.
type receipt struct {
	*readBatch
	count   int         // the server's delivery count at the delivery; fenced scripts compare it
	settled bool        // take.lua found an entry without a body, and acknowledged it
	unsure  atomic.Bool // an Ack of this delivery got no reply
}

// A readBatch has what all receipts of one read share.
type readBatch struct {
	source   *source
	leaseEnd time.Time // until then no other member receives the deliveries
	resets   int       // source.resets at the read
}

// countBase splits the server's delivery count: the remainder is the attempt, and the quotient
// is the number of the run of take.lua that made the delivery (lua/include/count.lua).
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

// recordRead remembers the highest position received, and whether a reply was lost. The next
// run of take.lua gives back the messages of a lost reply, which would otherwise be redelivered
// only after their lease, behind newer messages.
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

// receive returns redelivered messages, or otherwise new ones. A run of take.lua that delivers
// nothing may ask for another run, because it had too many delayed messages to sort them all, or
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
		// The stream or the group was deleted during the wait, and may exist again by now.
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

// fitCount returns how many of the first deliveries have at most maxBytes together. The first
// one counts even if it is larger.
func fitCount(ds []backend.Delivery, maxBytes int64) int {
	for i := range ds {
		if maxBytes -= int64(ds[i].Size()); maxBytes < 0 {
			return max(i, 1)
		}
	}
	return len(ds)
}

// returnAfter gives back the new messages after position, as if their reply had been lost. It is
// needed because XREADGROUP has no limit in bytes. If it fails, the next Receive gives them
// back.
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

// runTake runs take.lua once. more means that the script asks to be run again at once.
func (s *source) runTake(ctx context.Context, limit int, maxBytes int64) (ds []backend.Delivery, more bool, err error) {
	start, bytesLeft := time.Now(), int64(replyBytes)
	if maxBytes > 0 {
		bytesLeft = min(bytesLeft, maxBytes)
	}
	keys, own := s.incarnation.takeArgs([]string{s.stream, s.delayed, sweepKey(s.delayed), pauseKey(s.delayed)}, start)
	c := takeScript.call(keys, append([]any{
		s.config.Group, s.name, limit, millis(s.config.Lease), s.sweepOwner, s.sweepAfter, bytesLeft, s.runNumber, s.lostRun, bytes.TrimLeft(s.highest, "abcdef"),
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
	s.advanceTake(start.Add(wait), ends) // nothing that the script knows of is due earlier
	return ds, wait == 0, nil
}

// takeNew receives new messages with XREADGROUP, which replies {{stream, {{id, fields}, …}}}, or
// nil if there are none. If wait is set, it waits for messages until the next run of take.lua.
// It asks for as many as probably have at most maxBytes together.
func (s *source) takeNew(ctx context.Context, limit int, maxBytes int64, wait bool) ([]backend.Delivery, error) {
	// The reply must not become too large, because redis-server builds all of it before it
	// sends any part, and serves no other client in the meantime.
	count := min(limit, max(minRead, replyBytes/max(s.meanSize, 1)))
	if maxBytes > 0 {
		count = int(min(int64(count), max(1, maxBytes/max(s.maxSize, 1))))
	}
	args := append(make([]any, 0, 11), "xreadgroup", "group", s.config.Group, s.name, "count", count)
	if wait {
		left, ends := s.untilTake(true)
		defer s.untilTake(false)
		if left > 0 { // BLOCK 0 would wait for ever, and a short block lasts up to 100 ms
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
		_, _, err := s.runTake(ctx, 1, 0) // gives ds back and returns ErrReplaced
		return nil, err
	}
	return ds, nil
}

// send makes a call on the connection of the reader, and more calls in the same round trip.
// The reply to c is valid until the next send, which reuses its memory.
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

// recordReset records that the group was reset, which shows when it delivers a message as new
// that the member has received before. The server cannot tell these two deliveries apart, so
// predatesReset makes the member refuse the earlier ones itself.
func (s *source) recordReset(position string) (resets int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets++
	s.resetAt = strings.Clone(position)
	return s.resets
}

// predatesReset reports whether d was delivered before the group was reset to a position at or
// before it.
func (s *source) predatesReset(d *backend.Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.Token.(*receipt).resets < s.resets && d.Position >= s.resetAt
}

// deliveries reads entries in the form of take.lua, {{id, count, fields}, …}, if counted, and
// otherwise {{id, fields}, …}. The deliveries do not refer to the memory of the reply.
func (s *source) deliveries(p *parser, counted bool) []backend.Delivery {
	n, size := max(p.array(), 0), len(p.rest)
	if n == 0 {
		return nil
	}
	largest, left := 0, size
	var mem slab.Slab
	mem.Expect(0, 0, size)
	ds := s.loan.Lend(s.loan.Room(nil, n)[:n])
	receipts, from := make([]receipt, n), &readBatch{s, s.receivedAt.Add(s.config.Lease), s.resets} // only Receive changes resets
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

// untilTake returns the time until the next run of take.lua, and whether a delay ends then. It
// records whether a read is about to block until then.
func (s *source) untilTake(blocked bool) (left time.Duration, delayEnds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = blocked
	return time.Until(s.nextTake), s.delayEnds
}

// scheduleTake sets the time of the next run of take.lua when a run begins. A Delay during the
// run, which may be too late for it, makes the next one earlier with wakeAfter.
func (s *source) scheduleTake(next time.Time) {
	s.mu.Lock()
	s.nextTake, s.delayEnds = next, false
	s.mu.Unlock()
}

// advanceTake makes the next run of take.lua begin no later than at. delayEnds means that a
// delay ends then. If this made the run earlier while a read is blocked, advanceTake returns
// true, and the caller must wake the read at that time.
func (s *source) advanceTake(at time.Time, delayEnds bool) (blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.Before(s.nextTake) {
		return false
	}
	s.nextTake, s.delayEnds = at, delayEnds
	return s.blocked
}

// wakeAfter makes take.lua run after d, because a delay of d begins now.
func (s *source) wakeAfter(d time.Duration) {
	if !s.advanceTake(time.Now().Add(d), true) {
		return
	}
	if d <= 0 {
		s.unblock()
		return
	}
	time.AfterFunc(d, func() {
		if left, blocked := s.timeLeft(); blocked && left <= 0 {
			s.unblock()
		}
	})
}

// timeLeft returns the time until the next run of take.lua, and whether a read is blocked.
func (s *source) timeLeft() (left time.Duration, blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.nextTake), s.blocked
}

// blockedConn returns the ID of the connection to node on which a read is blocked. It returns 0
// if none is, or if the ID is unknown.
func (s *source) blockedConn(node *redis.Client) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.blocked || s.reader == nil {
		return 0
	}
	return s.reader.id(node)
}

const unblockAgain = time.Millisecond // time to the next attempt if the server had no read to unblock

// unblock ends the wait of a read with CLIENT UNBLOCK. Left alone, an idle server ends a wait up
// to 100 ms late, because it checks waits only when it has a command or ten times a second.
//
// The server may get this request before the read. It then reports that nothing was unblocked,
// and unblock repeats the request until the read has ended. If that never succeeds, the read
// ends by itself a little later.
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
