package nats

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A token is the Token of a delivery. The server does not fence: it lets a former holder settle
// a message. The token therefore records until when this member is certainly the holder.
type token struct {
	source       *source
	reply        string
	generation   *generation  // when the delivery arrived
	until        atomic.Int64 // the lease lasts at least until this instant; for other values see untilSettled
	ackUncertain atomic.Bool  // the outcome of an Ack is unknown
}

// held reports whether no other member can be the holder of the delivery.
func (tok *token) held() bool { return tok.until.Load() > leaseClock.now() }

// extend moves the end of the lease to the instant until, unless the delivery is settled.
func (tok *token) extend(until int64) {
	if was := tok.until.Load(); was > 0 {
		tok.until.CompareAndSwap(was, until)
	}
}

// delayable reports whether the member may send a Delay: it is certainly the holder, or no
// Delay of unknown outcome can have given the message to another member yet.
func (tok *token) delayable() bool {
	until, now := tok.until.Load(), leaseClock.now()
	return until > now || until != untilGivenBack && -until > now
}

// mayBeRedelivered reports whether a Delay of unknown outcome may have given the message to
// another member by now.
func (tok *token) mayBeRedelivered() bool {
	until := tok.until.Load()
	return until < untilSettled && until != untilGivenBack && -until <= leaseClock.now()
}

// errForgotten means that the server has forgotten a delivery.
var errForgotten = fmt.Errorf("%w: the server has forgotten that it handed it out", backend.ErrLeaseLost)

// forgotten returns errForgotten if the server is known to have forgotten the delivery.
func (tok *token) forgotten() error {
	if tok.generation.next.Load() == nil {
		return nil
	}
	if m, err := parseReply(tok.reply); err == nil && tok.generation.forgot(m.sequence) {
		return errForgotten
	}
	return nil
}

// deliveries makes deliveries of msgs and appends them to ds. The pull was sent at the instant
// asked, so no lease began earlier.
func (s *source) deliveries(ds []backend.Delivery, msgs []*natsgo.Msg, asked int64) []backend.Delivery {
	if len(msgs) == 0 {
		return ds
	}
	era := s.generation.Load() // messages arrive before their generation ends
	var mem slab.Slab
	for i := range msgs {
		mem.Expect(0, otherHeaders(msgs[i].Header), positionLen)
	}
	ds = s.puller.loan.Room(ds, len(msgs))
	tokens := make([]token, len(msgs))
	until := asked + int64(s.config.Lease)
	var digits [positionLen]byte
	s.tracker.held.Add(int64(len(msgs)))
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	for i, m := range msgs {
		ds = append(ds, backend.Delivery{})
		d, tok := &ds[len(ds)-1], &tokens[i]
		meta, err := parseReply(m.Reply)
		tok.source, tok.reply, tok.generation = s, m.Reply, era
		tok.until.Store(until)
		if err == nil {
			s.tracker.arrived(meta, m.Reply)
		}
		d.Topic, d.Attempt, d.Redelivered, d.Token = s.config.Topic, meta.delivered, meta.delivered > 1, tok
		d.Position, d.Payload = mem.Text(appendPosition(digits[:0], meta.sequence)), m.Data
		readHeader(&mem, &d.Message, m.Header, tok)
		d.Err = err
	}
	return s.puller.loan.Lend(ds)
}

// A deliveryMeta is what the reply subject of a delivery says:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
//
// A longer form has a domain and an account after ACK, and a token at the end.
type deliveryMeta struct {
	delivered int
	sequence  uint64
	number    uint64 // the consumer sequence
}

func parseReply(reply string) (m deliveryMeta, err error) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	skip := 2
	if strings.Count(rest, ".") >= 8 {
		skip = 4
	}
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	delivered, rest, _ := strings.Cut(rest, ".")
	sequence, rest, more := strings.Cut(rest, ".")
	number, _, _ := strings.Cut(rest, ".")
	if !ok || !more {
		return m, fmt.Errorf("%w: %q is not the reply of a delivery", backend.ErrRefused, reply)
	}
	if m.delivered, err = strconv.Atoi(delivered); err == nil {
		m.sequence, err = strconv.ParseUint(sequence, 10, 64)
	}
	if err == nil {
		m.number, err = strconv.ParseUint(number, 10, 64)
	}
	return m, err
}

// stored implements origin. A malformed reply has no time.
func (tok *token) stored() (stream string, sequence uint64, at time.Time) {
	m, _ := parseReply(tok.reply)
	tokens := strings.Split(tok.reply, ".")
	place := 7
	if len(tokens) >= 11 {
		place = 9
	}
	if len(tokens) > place {
		nanos, _ := strconv.ParseInt(tokens[place], 10, 64)
		at = time.Unix(0, nanos)
	}
	return tok.source.loc.stream, m.sequence, at
}

// A clock counts nanoseconds for leases. Go's monotonic clock stops while the machine is
// suspended, but leases continue on the server's clock. A clock therefore adds every step of
// the wall clock ahead of the monotonic clock, and ignores steps back.
//
// If somebody sets the wall clock forward, leases end early for this process. That is safe: the
// process only assumes too early that it has lost them.
type clock struct {
	epoch time.Time
	ahead atomic.Int64 // wall clock minus monotonic clock, as of the last step
	slept atomic.Int64 // sum of all steps forward
}

// clockStep is the smallest step of the wall clock that counts. A smaller difference may come
// from a pause between reading the two clocks.
const clockStep = time.Second

// now returns the nanoseconds since the epoch. Don't convert a time.Time of earlier instead: the
// machine may have been suspended since.
func (c *clock) now() int64 {
	t := time.Now()
	return c.read(int64(t.Sub(c.epoch)), int64(t.Round(0).Sub(c.epoch.Round(0))))
}

// read is now for clocks that show the times mono and wall since the epoch.
func (c *clock) read(mono, wall int64) int64 {
	for was := c.ahead.Load(); wall-mono-was >= int64(clockStep) || was-(wall-mono) >= int64(clockStep); was = c.ahead.Load() {
		if c.ahead.CompareAndSwap(was, wall-mono) {
			c.slept.Add(max(wall-mono-was, 0))
		}
	}
	return mono + c.slept.Load()
}

// leaseClock times all leases of this process.
var leaseClock = clock{epoch: time.Now()}
