package redisstream

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A source is one member of a group. It is a consumer of the stream. While a read waits it has a
// connection of its own, see readers.
//
// Receive takes new messages by XREADGROUP. It takes redelivered messages by the script
// take.lua, after a delay or an expired lease. A source runs this script at the end of each
// delay that it knows, and otherwise every half second.
type source struct {
	backend *Backend
	config  backend.Config
	options TopicOptions
	stream  string
	delayed string
	name    string // name of the consumer

	closed atomic.Bool

	reading sync.Mutex // held during Receive
	reader  *wire      // of the Receive under way, or nil; mu guards it too when it changes
	reply   reply      // memory for the replies of the reader
	read    int64      // bytes of the last reply that had entries
	weight  int        // mean bytes of an entry in this reply
	largest int64      // bytes of the largest recent entry
	loan    slab.Loan  // the deliveries that are lent to the caller of Receive
	asked   time.Time  // when the last Receive was called
	failed  bool       // the last Receive failed
	turn    int        // index of the consumer at which take.lua continues
	after   string     // id after which take.lua continues at this consumer
	number  int        // number of the next run of take.lua; it grows after each run with a reply
	lost    int        // the number when a reply was lost; 0 after its messages were given back
	high    []byte     // the highest position received

	incarnation incarnation // zero if the member has no Instance

	mu    sync.Mutex
	sweep time.Time // when to run take.lua next
	ends  bool      // a delay ends at sweep
	waits bool      // a read waits for new messages, at most until sweep
	life  int       // how often the group has begun again, as far as the member noticed
	again string    // the first position that the group delivered in this life
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (_ backend.Source, err error) {
	defer func() { err = b.failure("attach", c.Topic+"/"+c.Group, err) }()
	if c.Lease <= 0 {
		return nil, fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
	}
	start, err := startID(c.Start)
	if err != nil {
		return nil, err
	}
	stream := b.streamKey(c.Topic)
	if err := b.with(ctx, func(w *wire) error { return (&inspection{backend: b, wire: w}).topic(ctx, stream) }); err != nil {
		return nil, err
	}
	s := &source{
		backend: b, config: c, options: b.options.Topics[c.Topic], stream: stream, name: memberName(c),
		number: 1, high: []byte(noPosition), weight: unknown, largest: unknown,
	}
	s.delayed = delayedKey(s.stream, c.Group)
	if c.Ephemeral {
		if err := b.ephemerals.enter(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := s.incarnation.join(ctx, s, start); err != nil {
		return nil, err
	}
	b.readers.join()
	b.members.add(s)
	if b.closed.Load() {
		s.close() //nolint:contextcheck // closing has none
		return nil, backend.ErrClosed
	}
	b.warnings.tell(c.Notify)
	return s, nil
}

// startID returns the place at which a group with this start begins, as lua/with/start.lua
// reads it: 0, $, the id after which the group begins, or @ and the time in milliseconds.
func startID(start backend.Start) (string, error) {
	switch start {
	case backend.StartEarliest:
		return "0", nil
	case backend.StartLatest:
		return "$", nil
	}
	if t, ok := start.At(); ok {
		return "@" + strconv.FormatInt(entryMillis(t), 10), nil
	}
	position, ok := start.After()
	if !ok {
		return "", fmt.Errorf("%w: start %q", backend.ErrRefused, start)
	}
	return *entryID(&position), checkPosition(position)
}

const latestMillis = 1 << 53 // Lua counts milliseconds exactly up to this number

// entryMillis returns the first number of the id of an entry that is stored at t.
func entryMillis(t time.Time) int64 { return min(max(t.UnixMilli(), 0), latestMillis) }

// failure adds the operation, topic and group to err. After Close the error is ErrClosed.
func (s *source) failure(op string, err error) error {
	return failure(s.closed.Load(), op, s.config.Topic+"/"+s.config.Group, err)
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
	s.mu.Lock()
	if s.reader != nil {
		s.reader.end()
	}
	s.mu.Unlock()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.reply, s.loan = reply{}, slab.Loan{} // a kept subscription or delivery keeps s alive
	s.backend.members.remove(s)
	s.backend.readers.leave()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // Close has none
	defer cancel()
	// An error does not matter, because Maintain removes a member that could not leave.
	if s.config.Ephemeral {
		s.backend.ephemerals.leave(ctx, s)
		return
	}
	_ = s.backend.run(ctx, leaveScript, []string{s.stream}, s.config.Group, s.name)
}

// untilSweep notes whether a read waits for new messages. It returns the time until the next
// run of take.lua, and whether a delay ends then.
func (s *source) untilSweep(waits bool) (left time.Duration, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = waits
	return time.Until(s.sweep), s.ends
}

// sweepFrom sets the time of the next run of take.lua, when a run begins. A Delay during
// the run may be too late for this run, and then makes the next run earlier by dueIn.
func (s *source) sweepFrom(next time.Time) {
	s.mu.Lock()
	s.sweep, s.ends = next, false
	s.mu.Unlock()
}

// sweepBy makes the next run of take.lua begin no later than at, when a delay may end. It
// returns true if this made the run earlier while a read waits. The caller must then wake
// the read at that time.
func (s *source) sweepBy(at time.Time, ends bool) (waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.Before(s.sweep) {
		return false
	}
	s.sweep, s.ends = at, ends
	return s.waits
}

// dueIn makes take.lua run after d, because a delay of d begins now.
func (s *source) dueIn(d time.Duration) {
	if !s.sweepBy(time.Now().Add(d), true) {
		return
	}
	if d <= 0 {
		s.unblock()
		return
	}
	time.AfterFunc(d, func() {
		if left, waits := s.left(); waits && left <= 0 {
			s.unblock()
		}
	})
}

// left returns the time until the next run of take.lua, and whether a read waits.
func (s *source) left() (left time.Duration, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.sweep), s.waits
}

// waiting returns the id of the connection to node on which a read waits. It returns 0 if
// no read waits, or if the id is not known.
func (s *source) waiting(node *redis.Client) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waits || s.reader == nil {
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
	ctx, cancel := context.WithTimeout(context.Background(), block) //nolint:forbidigo // the context of the read may be done
	defer cancel()
	node, err := s.backend.node(ctx, s.stream)
	if err != nil || s.waiting(node) == 0 {
		return
	}
	_ = s.backend.with(ctx, func(w *wire) error {
		return w.do(ctx, func(ctx context.Context) error {
			for id := s.waiting(node); id != 0 && err == nil; id = s.waiting(node) {
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
