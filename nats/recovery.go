package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// A recovery finds deliveries that the server has sent to a member, and that were lost with
// a connection. If the member is alone in its group, it recalls them: it gives them back
// without a delay, so the server redelivers them before all others. Otherwise a lost
// delivery is redelivered after its lease, because it might be one of another member.
type recovery struct{ source *source }

const (
	longHold   = answer  // longest time for which Receive waits for an answer about lost deliveries
	mostRecall = 1 << 16 // most sequences that a member recalls
)

// doubt records that deliveries may have been lost, or forgotten by the server.
func (p *pulls) doubt() {
	if !p.unsure {
		p.unsure, p.since = true, time.Now()
	}
}

// run asks the server about the deliveries that may have been lost, or that the server may
// have forgotten. While the server does not answer a member that is alone, the error is
// ErrUnavailable, because later messages must not be received before the lost ones. After
// longHold the member gives notice and receives them. The caller holds source.reading.
func (y recovery) run(ctx context.Context) error {
	s, p := y.source, &y.source.pulls
	for {
		before := s.tally.now()
		alone := before.alone && len(s.backend.members.of(s.config.Topic, s.config.Group)) == 1
		info, err := s.recollect(ctx)
		if err == nil && alone && info.NumWaiting > 0 && time.Since(p.since) < p.block+late {
			// The server may still send messages for a lost pull.
			if !sleep(ctx, s.ended, 20*time.Millisecond) {
				return errors.Join(ctx.Err(), s.unusable())
			}
			continue
		}
		if err == nil && alone {
			err = y.recover(ctx, before, &info)
		}
		switch denied := errors.Is(err, backend.ErrDenied); {
		case err == nil, denied:
			if err == nil {
				s.tally.reach(&info)
			}
			p.unsure, p.missed = false, 0
			return nil
		case alone && time.Since(p.since) < longHold:
			return fmt.Errorf("%w: it is not known which messages the connection has lost: %w", backend.ErrUnavailable, err)
		case alone:
			s.tally.meet() // no call waits again
			notify(s.config, fmt.Sprintf("messages may have been lost with a connection, and the server has not told which ones for %v: "+
				"they are redelivered after their lease, so later events of their keys may be handled before them", longHold))
		}
		return nil
	}
}

// recover recalls the lost deliveries of a member that was alone before c was asked for.
// The member may have lost messages that were new, and messages that were delayed. It
// recalls a delayed message that is due even if the server has not sent it yet.
func (y recovery) recover(ctx context.Context, before count, c *jetstream.ConsumerInfo) error {
	s := y.source
	lost, alone := s.tally.judge(before, c, 0)
	if !alone {
		return nil
	}
	if lost > uint64(s.pulls.missed) { // the pulls of this member were for fewer
		s.tally.meet()
		return nil
	}
	first, last := before.stream+1, before.stream
	if lost > 0 {
		last = max(last, c.Delivered.Stream)
	}
	if last-first+1 > mostRecall {
		notify(s.config, "messages that were lost with a connection are redelivered after their lease, because too many messages of other topics are between them")
		s.tally.meet()
		return nil
	}
	overdue := s.tally.overdue(lost > 0)
	all := overdue
	for sequence := first; sequence <= last; sequence++ {
		all = append(all, sequence)
	}
	if err := y.recall(ctx, all, len(overdue), c.Delivered.Consumer); err != nil {
		return err
	}
	s.tally.recalled(overdue, int(lost), first, last)
	return nil
}

// pauseBody takes a message out of the queue of due messages for a second.
var pauseBody = []byte(`-NAK {"delay":1000000000}`)

// recall makes the server redeliver messages immediately, in the order of their sequences.
// The server ignores sequences of messages that are not pending. The first queued ones may
// be in its queue of due messages, in another order, so they are taken out of it first.
// newest is the number of the newest delivery.
func (y recovery) recall(ctx context.Context, sequences []uint64, queued int, newest uint64) (err error) {
	if len(sequences) == 0 {
		return nil
	}
	subject := y.replies(newest)
	words := make([]outgoing, 0, len(sequences)+queued)
	for _, sequence := range sequences[:queued] {
		words = append(words, outgoing{subject: subject(sequence), data: pauseBody})
	}
	for _, sequence := range sequences {
		words = append(words, outgoing{subject: subject(sequence), data: nakBody})
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := y.source.backend.requester(ctx)
	if err != nil {
		return err
	}
	defer y.source.backend.requesters.Put(r)
	for len(words) > 0 && err == nil {
		n := min(len(words), requestRoom)
		r.begin(n)
		copy(r.out, words[:n])
		r.await(n - 1) // the server handles the words in order
		r.exchange(ctx, conversation{got: func(_ int, m *natsgo.Msg, failure error) {
			switch {
			case failure != nil:
				err = classOf(ctx, failure, false)
			case isUnserved(m):
				err = fmt.Errorf("%w: %s", backend.ErrUnavailable, unserved)
			}
		}})
		r.end()
		words = words[n:]
	}
	return err
}

// replies returns a function that makes the reply subject of a delivery. The server checks
// the number of a reply only against the newest number and its acknowledged ones.
func (y recovery) replies(number uint64) func(sequence uint64) string {
	s := y.source
	s.tally.mu.Lock()
	like := s.tally.reply
	s.tally.mu.Unlock()
	if like == "" {
		like = "$JS.ACK." + s.place.stream + "." + s.place.consumer(s.config.Group) + ".1.0.0.0.0"
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

// clear finds out whether the messages of Delay calls of unknown outcome have come again. If
// not, and if the member is alone, it recalls them.
func (y recovery) clear(ctx context.Context) error {
	s := y.source
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.unusable() != nil || len(s.tally.overdue(false)) == 0 {
		return nil
	}
	s.pulls.lost = s.backend.sender.connection()
	s.pulls.doubt()
	return y.run(ctx)
}
