package nats

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Settler = (*Backend)(nil)

// settledKey is the metadata key under which a consumer lists the messages that operators have
// settled, oldest first. Each entry has the sequence of the message, the number of the
// consumer's last delivery after the message was settled, and the time in nanoseconds:
//
//	1795827900560167:41:1795827900869103221,1795827900560201:57:1795827914120455090
//
// The list is necessary because the server does not tell a member that another client has
// acknowledged one of its messages, and even confirms acknowledgements of it. From the list,
// members learn which of their deliveries are lost: those of a listed message with a number up
// to the one in the entry.
const settledKey = "eventbus.settled"

const (
	settledListAge = 2 * time.Minute       // how long a message stays in the list; members look every ten seconds
	maxSettled     = 1000                  // most messages in the list, of about 50 bytes each
	settledRecheck = 50 * time.Millisecond // how long after a change of the list to check that no other client has overwritten it
	settledFull    = "operators have settled too many messages in the last minutes"
)

// Settle implements [backend.Settler]. It sends an acknowledgement on behalf of the holder, and
// then adds the message to the list of the consumer. The server looks only at the sequence in
// an acknowledgement and ignores one of a message that is not pending, so Settle cannot tell
// whether the group still had the message.
func (b *Backend) Settle(ctx context.Context, topic, group, position string) (had bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	t := operatorSettle{b, b.locate(topic), group, 0}
	what := topic + "/" + group
	err = b.call(ctx, "settle in", what, harmless, func(ctx context.Context) error { return t.check(ctx, position) })
	if err == nil { // after an error from here on, the outcome is unknown
		err = b.call(ctx, "settle in", what, effective, t.settle)
	}
	return err == nil, err
}

// Settled implements [backend.Settler]. It recognizes the messages below the acknowledgement
// floor of the consumer, and those in the list.
func (b *Backend) Settled(ctx context.Context, topic, group string, positions []string) ([]bool, error) {
	return run(ctx, b, "ask what is settled in", topic+"/"+group, harmless, func(ctx context.Context) ([]bool, error) {
		var info jetstream.ConsumerInfo
		if err := b.ask(ctx, consumerInfo(b.locate(topic), group), nil, &info); err != nil {
			return nil, err
		}
		listed := map[uint64]bool{}
		for _, entry := range settledEntries(&info) {
			seq, _, _ := parseSettled(entry)
			listed[seq] = true
		}
		settled := make([]bool, len(positions))
		for i, p := range positions {
			seq, err := parsePosition(p)
			if err != nil {
				return nil, err
			}
			settled[i] = seq <= info.AckFloor.Stream || listed[seq]
		}
		return settled, nil
	})
}

// An operatorSettle is one call of Settle.
type operatorSettle struct {
	backend *Backend
	loc     *location
	group   string
	seq     uint64
}

// check returns an error if the message cannot be settled. It changes nothing.
func (t *operatorSettle) check(ctx context.Context, position string) (err error) {
	info, err := t.info(ctx)
	if err != nil {
		return err
	}
	if t.seq, err = parsePosition(position); err != nil {
		return err
	}
	switch {
	case t.seq > info.Delivered.Stream:
		return fmt.Errorf("%w: the group has not received the message at %s yet", backend.ErrRefused, position)
	case len(recentSettled(settledEntries(info), time.Now())) >= maxSettled:
		return fmt.Errorf("%w: %s", backend.ErrUnavailable, settledFull)
	}
	return nil
}

func (t *operatorSettle) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	info := new(jetstream.ConsumerInfo)
	return info, t.backend.ask(ctx, consumerInfo(t.loc, t.group), nil, info)
}

// settle acknowledges the message and then lists it. In this order, no delivery before the
// acknowledgement has a higher number than the entry.
func (t *operatorSettle) settle(ctx context.Context) error {
	subject := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.1.0.0", t.loc.stream, t.loc.consumer(t.group), t.seq) // see deliveryMeta
	answer, err := t.backend.request(ctx, outgoing{subject: subject, data: ackBody}, true)
	if err == nil && isUnserved(answer) {
		err = fmt.Errorf("%w: no server accepts acknowledgements for the consumer", backend.ErrUnavailable)
	}
	if err != nil {
		return err
	}
	info, err := t.info(ctx)
	if err != nil {
		return halfDone(err)
	}
	if err := t.addToList(ctx, fmt.Sprintf("%d:%d:%d", t.seq, info.Delivered.Consumer, time.Now().UnixNano())); err != nil {
		return halfDone(err)
	}
	return nil
}

// addToList adds an entry to the list of the consumer. The server has no conditional update, so
// after each write addToList checks whether another client has overwritten it.
func (t *operatorSettle) addToList(ctx context.Context, entry string) error {
	t.backend.settledMu.Lock()
	defer t.backend.settledMu.Unlock()
	for {
		info, err := t.info(ctx)
		if err != nil {
			return err
		}
		if slices.Contains(settledEntries(info), entry) {
			for _, s := range t.backend.members.of(t.loc.topic, t.group) {
				s.settledByOperators.update(info)
			}
			return nil
		}
		c := info.Config
		if c.Metadata = maps.Clone(c.Metadata); c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[settledKey] = strings.Join(append(recentSettled(settledEntries(info), time.Now()), entry), ",")
		if err := t.backend.putConsumer(ctx, t.loc, c, "update", nil); err != nil {
			return err
		}
		if !sleep(ctx, nil, settledRecheck+rand.N(settledRecheck)) {
			return ctx.Err()
		}
	}
}

// settledEntries returns the list of a consumer.
func settledEntries(c *jetstream.ConsumerInfo) []string {
	text := c.Config.Metadata[settledKey]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// recentSettled removes the entries that are too old from a list.
func recentSettled(list []string, now time.Time) []string {
	return slices.DeleteFunc(list, func(entry string) bool {
		_, _, at := parseSettled(entry)
		return now.Sub(at) > settledListAge
	})
}

// parseSettled reads an entry. If it cannot be read, the sequence is 0, which no message has.
func parseSettled(entry string) (seq, number uint64, at time.Time) {
	parts := strings.Split(entry, ":")
	if len(parts) != 3 {
		return 0, 0, at
	}
	seq, err := strconv.ParseUint(parts[0], 10, 64)
	number, err2 := strconv.ParseUint(parts[1], 10, 64)
	nanos, err3 := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || err2 != nil || err3 != nil {
		return 0, 0, at
	}
	return seq, number, time.Unix(0, nanos)
}

// A settledList is what a member has learned about the messages that operators have settled.
type settledList struct {
	mu      sync.Mutex
	created time.Time         // identifies the consumer; another one numbers its deliveries from 1
	text    string            // the list of the consumer as last seen
	last    map[uint64]uint64 // by sequence: the number of the last delivery before the message was settled
}

const maxRemembered = 10 * maxSettled // most messages that a member remembers

// update reads the list of the consumer. Messages that have left the list are remembered,
// because a long lease is seldom extended, and only then the member finds out.
func (l *settledList) update(c *jetstream.ConsumerInfo) {
	text := c.Config.Metadata[settledKey]
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.Created.Equal(l.created) {
		l.created, l.text, l.last = c.Created, "", nil
	}
	if text == l.text {
		return
	}
	if l.last == nil || len(l.last) > maxRemembered {
		l.last = map[uint64]uint64{}
	}
	for _, entry := range settledEntries(c) {
		seq, number, _ := parseSettled(entry)
		l.last[seq] = max(l.last[seq], number)
	}
	l.text = text
}

// reset forgets everything, because the consumer was deleted.
func (l *settledList) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text, l.last = "", nil
}

// includes reports whether an operator has settled the message since this delivery of it.
func (l *settledList) includes(tok *token) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == 0 {
		return false
	}
	m, err := parseReply(tok.reply)
	return err == nil && m.number <= l.last[m.sequence]
}
