package nats

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

const (
	recoveryTimeout = answerTimeout // how long Receive waits for an answer about lost deliveries
	maxRecall       = 1 << 16       // most sequences that a member recalls at a time
)

// markUnsure records that deliveries may have been lost, or forgotten by the server.
func (p *puller) markUnsure() {
	if !p.unsure {
		p.unsure, p.since = true, time.Now()
	}
}

// recover asks the server which deliveries were lost with a connection, or forgotten by the
// server in a crash. If the member is alone in its group, it recalls the lost deliveries: it
// gives them back without a delay, and the server redelivers them before all others. If there
// are other members, a lost delivery is redelivered only when its lease expires, because it
// might be one that another member holds.
//
// As long as a member that is alone gets no answer, the error is ErrUnavailable, because later
// messages must not be received before the lost ones. After recoveryTimeout the member sends a
// notice and receives them anyway. The caller holds source.reading.
func (s *source) recover(ctx context.Context) error {
	p := &s.puller
	for {
		before := s.tracker.snapshot()
		alone := before.alone && len(s.backend.members.of(s.config.Topic, s.config.Group)) == 1
		info, err := s.checkForgotten(ctx)
		if err == nil && alone && info.NumWaiting > 0 && time.Since(p.since) < p.block+pullSlack {
			// The server may still send messages for a lost pull.
			if !sleep(ctx, s.ended, 20*time.Millisecond) {
				return errors.Join(ctx.Err(), s.unusable())
			}
			continue
		}
		if err == nil && alone {
			err = s.recallLost(ctx, before, &info)
		}
		switch denied := errors.Is(err, backend.ErrDenied); {
		case err == nil, denied:
			if err == nil {
				s.tracker.catchUp(&info)
			}
			p.unsure, p.missed = false, 0
			return nil
		case alone && time.Since(p.since) < recoveryTimeout:
			return fmt.Errorf("%w: it is not known yet which messages were lost with the connection: %w", backend.ErrUnavailable, err)
		case alone:
			s.tracker.sawOthers() // so no other call waits
			notify(s.config, fmt.Sprintf("messages may have been lost with a connection, and for %v the server has not answered which ones: "+
				"they are redelivered when their lease expires, so later events of their keys may be handled before them", recoveryTimeout))
		}
		return nil
	}
}

// recallLost recalls the lost deliveries, of new and of delayed messages, for a member that was
// alone before it requested the state c. It recalls a delayed message that is due even if the
// server has not sent it yet.
func (s *source) recallLost(ctx context.Context, before snapshot, c *jetstream.ConsumerInfo) error {
	lost, alone := s.tracker.compare(before, c, 0)
	if !alone {
		return nil
	}
	if lost > uint64(s.puller.missed) { // the lost pulls of this member were for fewer
		s.tracker.sawOthers()
		return nil
	}
	first, last := before.stream+1, before.stream
	if lost > 0 {
		last = max(last, c.Delivered.Stream)
	}
	if last-first+1 > maxRecall {
		notify(s.config, "messages that were lost with a connection are redelivered only when their lease expires, because too many messages of other topics lie between them")
		s.tracker.sawOthers()
		return nil
	}
	overdue := s.tracker.overdue(lost > 0)
	all := overdue
	for sequence := first; sequence <= last; sequence++ {
		all = append(all, sequence)
	}
	if err := s.recall(ctx, all, len(overdue), c.Delivered.Consumer); err != nil {
		return err
	}
	s.tracker.recalled(overdue, int(lost), first, last)
	return nil
}

// pauseBody takes a message out of the server's queue of due messages for a second.
var pauseBody = []byte(`-NAK {"delay":1000000000}`)

// recall makes the server redeliver messages immediately, in the order of sequences; sequences
// that are not pending are ignored. The first queued of them may already be in the server's
// queue of due messages, in a different order, so recall first takes them out of it. newest is
// the number of the newest delivery.
func (s *source) recall(ctx context.Context, sequences []uint64, queued int, newest uint64) (err error) {
	if len(sequences) == 0 {
		return nil
	}
	subject := s.ackSubjects(newest)
	msgs := make([]outgoing, 0, len(sequences)+queued)
	for _, sequence := range sequences[:queued] {
		msgs = append(msgs, outgoing{subject: subject(sequence), data: pauseBody})
	}
	for _, sequence := range sequences {
		msgs = append(msgs, outgoing{subject: subject(sequence), data: nakBody})
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := s.backend.requester(ctx)
	if err != nil {
		return err
	}
	defer s.backend.requesters.Put(r)
	for len(msgs) > 0 && err == nil {
		n := min(len(msgs), maxRequests)
		r.begin(n)
		copy(r.out, msgs[:n])
		r.await(n - 1) // the server handles them in order
		r.exchange(ctx, callOptions{onAnswer: func(_ int, m *natsgo.Msg, failure error) {
			switch {
			case failure != nil:
				err = classOf(ctx, failure, false)
			case isUnserved(m):
				err = fmt.Errorf("%w: %s", backend.ErrUnavailable, unservedText)
			}
		}})
		r.end()
		msgs = msgs[n:]
	}
	return err
}

// ackSubjects returns a function that makes the reply subject of a delivery from its sequence.
// The server checks the number in it only against the newest number and its acknowledged ones.
func (s *source) ackSubjects(number uint64) func(sequence uint64) string {
	s.tracker.mu.Lock()
	like := s.tracker.reply
	s.tracker.mu.Unlock()
	if like == "" {
		like = "$JS.ACK." + s.loc.stream + "." + s.loc.consumer(s.config.Group) + ".1.0.0.0.0"
	}
	tokens := strings.Split(like, ".")
	at := 4
	if len(tokens) >= 11 {
		at = 6
	}
	tokens[at], tokens[at+2] = "1", strconv.FormatUint(number, 10)
	return func(sequence uint64) string {
		tokens[at+1] = strconv.FormatUint(sequence, 10)
		return strings.Join(tokens, ".")
	}
}

// resolveDelays finds out whether the messages whose Delay has an unknown outcome have been
// redelivered. If they have not, and the member is alone, it recalls them.
func (s *source) resolveDelays(ctx context.Context) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.unusable() != nil || len(s.tracker.overdue(false)) == 0 {
		return nil
	}
	s.puller.lost = s.backend.sender.connection()
	s.puller.markUnsure()
	return s.recover(ctx)
}

// A tracker follows the deliveries of a consumer as one member sees them. It finds deliveries
// that the server has sent to the member and that never arrived.
//
// The server numbers all deliveries of a consumer, and a member that is alone gets every
// number. After a connection is lost, the numbers between its newest delivery and the server's
// are therefore lost deliveries. Numbers that do not arrive here, waiting pulls, and pending
// messages that are not held here are signs of another member.
type tracker struct {
	held atomic.Int64 // deliveries that have arrived and are neither certainly settled nor delayed

	mu       sync.Mutex
	number   uint64                  // number of the newest delivery
	stream   uint64                  // highest sequence of a delivered message
	reply    string                  // reply subject of a delivery; empty before the first
	delayed  map[uint64]pendingDelay // by sequence: messages that the member has given back
	lost     map[uint64]bool         // sequences that the member has recalled; some may be of other topics
	lostLeft int                     // how many of lost have not been redelivered, at most
	lastSign time.Time               // when there was a sign of another member; zero if never
}

// A pendingDelay is a Delay whose message has not been redelivered yet.
type pendingDelay struct {
	token   *token
	due     int64 // when the message is due, at the latest
	certain bool  // the server has confirmed the Delay
	before  int64 // token.until before the call
}

// aloneAfter is how long there must be no sign of another member before a member counts as
// alone. Maintain checks for signs at least every 5 seconds.
const aloneAfter = 15 * time.Second

// Values of token.until that are not the end of a lease. Any other negative value -x means
// that the outcome of a Delay is unknown, and that no other member gets the message before
// the instant x.
const (
	untilSettled   = 0             // by a call that the server has confirmed
	untilGivenBack = math.MinInt64 // a Delay of unknown outcome was done
)

// A snapshot is the state of a tracker at a moment.
type snapshot struct {
	number, stream uint64
	pending        int // how many messages may be pending because of this member, at most
	alone          bool
}

// init records the state of the consumer to which the member attaches.
func (t *tracker) init(c *jetstream.ConsumerInfo) {
	t.number, t.stream = c.Delivered.Consumer, c.Delivered.Stream
	t.delayed, t.lost = map[uint64]pendingDelay{}, map[uint64]bool{}
	if c.NumAckPending > 0 || c.NumWaiting > 0 {
		t.lastSign = time.Now()
	}
}

func (t *tracker) snapshot() snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return snapshot{
		number: t.number, stream: t.stream, pending: int(t.held.Load()) + len(t.delayed) + t.lostLeft,
		alone: t.lastSign.IsZero() || time.Since(t.lastSign) > aloneAfter,
	}
}

// sawOthers records a sign of another member.
func (t *tracker) sawOthers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastSign = time.Now()
}

// arrived records a delivery. The caller holds t.mu.
func (t *tracker) arrived(m deliveryMeta, reply string) {
	if m.number > t.number+1 {
		t.lastSign = time.Now()
	}
	t.number, t.stream, t.reply = m.number, max(t.stream, m.sequence), reply
	if d, ok := t.delayed[m.sequence]; ok {
		delete(t.delayed, m.sequence)
		d.done()
	}
	switch {
	case t.lostLeft == 0:
	case m.delivered == 1: // recalled messages would have come before new ones
		t.lostLeft = 0
		clear(t.lost)
	case t.lost[m.sequence]:
		t.lostLeft--
		delete(t.lost, m.sequence)
	}
}

// done records that the message has been redelivered, or will be.
func (d pendingDelay) done() {
	if !d.certain {
		d.token.until.Store(untilGivenBack)
	}
}

// catchUp makes the server's newest delivery the newest of the tracker.
func (t *tracker) catchUp(c *jetstream.ConsumerInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number, t.stream = c.Delivered.Consumer, c.Delivered.Stream
}

// compare returns how many deliveries c has more than before, and records signs of another
// member. At most pulls pulls of this member may be waiting.
func (t *tracker) compare(before snapshot, c *jetstream.ConsumerInfo, pulls int) (newer uint64, alone bool) {
	if c.Delivered.Consumer > before.number {
		newer = c.Delivered.Consumer - before.number
	}
	alone = c.NumWaiting <= pulls && uint64(c.NumAckPending) <= uint64(max(before.pending, 0))+newer
	if !alone {
		t.sawOthers()
	}
	return newer, alone
}

// reset forgets everything, because the consumer was deleted.
func (t *tracker) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number, t.stream, t.lastSign = 0, 0, time.Now()
	clear(t.delayed)
	clear(t.lost)
	t.lostLeft = 0
}

// overdue returns the sequences of messages that are due but have not been redelivered. Unless
// always is set, it returns none if each of their Delays has a certain outcome.
func (t *tracker) overdue(always bool) (sequences []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := leaseClock.now()
	for sequence, d := range t.delayed {
		if d.due <= now {
			sequences = append(sequences, sequence)
			always = always || !d.certain
		}
	}
	if !always {
		return nil
	}
	for sequence := range t.lost {
		sequences = append(sequences, sequence)
	}
	slices.Sort(sequences)
	return slices.Compact(sequences)
}

// recalled records that the server will redeliver messages before all others: the overdue ones,
// and the lost ones with sequences from first to last.
func (t *tracker) recalled(overdue []uint64, lost int, first, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sequence := range overdue {
		if d, ok := t.delayed[sequence]; ok {
			d.done()
			d.certain = true
			t.delayed[sequence] = d
		}
	}
	for sequence := first; sequence <= last; sequence++ {
		t.lost[sequence] = true
	}
	t.lostLeft = min(t.lostLeft+lost, len(t.lost))
}

// settled records that a delivery was certainly acknowledged, or that its lease is lost.
func (t *tracker) settled(tok *token) {
	switch was := tok.until.Swap(untilSettled); {
	case was == untilSettled, was == untilGivenBack, was < 0 && t.dropDelay(tok):
	default:
		t.held.Add(-1)
	}
}

// dropDelay removes the delay of a delivery, and reports whether there was one.
func (t *tracker) dropDelay(tok *token) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, _ := parseReply(tok.reply)
	mine := t.delayed[m.sequence].token == tok
	if mine {
		delete(t.delayed, m.sequence)
	}
	return mine
}

// startDelay records a Delay before it is sent, because its message may be redelivered before
// the answer arrives. No other member gets the message before the instant first.
func (t *tracker) startDelay(tok *token, first int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, _ := parseReply(tok.reply)
	was := tok.until.Load()
	if t.delayed[m.sequence].token != tok {
		t.held.Add(-1)
	}
	t.delayed[m.sequence] = pendingDelay{token: tok, due: math.MaxInt64, before: was}
	if was < 0 {
		was = -was
	}
	tok.until.Store(-max(1, min(was, first)))
}

// endDelay records the outcome of a Delay. If the server has received it, the message is due at
// the instant due. A Delay that was certainly not sent is dropped.
func (t *tracker) endDelay(tok *token, due int64, o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, _ := parseReply(tok.reply)
	d := t.delayed[m.sequence]
	waits := d.token == tok // the message has not been redelivered
	switch {
	case waits && o == outcomeFailed && d.before > 0:
		delete(t.delayed, m.sequence)
		t.held.Add(1)
		tok.until.Store(d.before)
		return
	case waits && o == outcomeFailed: // an earlier call had an uncertain outcome
		tok.until.Store(d.before)
		o = outcomeUncertain
	}
	if o == outcomeDone {
		tok.until.Store(untilSettled)
	}
	if waits {
		d.due, d.certain = due, o == outcomeDone
		t.delayed[m.sequence] = d
	}
}

// A generation is the set of deliveries between two queries about what the server remembers.
//
// A server that crashed may have forgotten its last deliveries. It does not answer
// acknowledgements of them, and redelivers their messages as if they were new. After an error
// that may come from a crash, the member therefore queries the sequence of the server's last
// delivery. The answer applies to the generation that ends with the query and to all earlier
// ones; it says nothing about later deliveries.
type generation struct {
	remembered atomic.Uint64              // the server remembers deliveries up to this sequence
	next       atomic.Pointer[generation] // nil in the current generation
}

func newGeneration() *generation {
	g := new(generation)
	g.remembered.Store(math.MaxUint64)
	return g
}

// forgot reports whether the server is known to have forgotten a delivery of this generation.
func (g *generation) forgot(sequence uint64) bool {
	for ; g != nil; g = g.next.Load() {
		if sequence > g.remembered.Load() {
			return true
		}
	}
	return false
}

// nextGeneration starts a generation and returns the previous one.
func (s *source) nextGeneration() *generation {
	fresh := newGeneration()
	past := s.generation.Swap(fresh)
	past.next.Store(fresh)
	return past
}

// consumerDeleted records that the consumer was deleted, and all its deliveries with it.
func (s *source) consumerDeleted() {
	s.nextGeneration().remembered.Store(0)
	s.tracker.reset()
	s.settledByOperators.reset()
}

// checkForgotten asks the server about the consumer and records which deliveries the server has
// forgotten. Without an answer, none counts as forgotten.
func (s *source) checkForgotten(ctx context.Context) (info jetstream.ConsumerInfo, err error) {
	past := s.nextGeneration()
	info, err = s.info(ctx)
	if err == nil && info.Delivered.Stream > 0 { // 0 is no answer: the server is still starting
		past.remembered.Store(info.Delivered.Stream)
	}
	return info, err
}
