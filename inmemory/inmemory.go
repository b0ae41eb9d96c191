// Package inmemory is a backend in the memory of the process, for tests and for events that need not
// outlive it. It is also the reference for the contract in package backend: if you write another
// backend, read here how each method behaves.
//
// A topic has a lock, a log of messages, and groups. A group has a cursor into the log and a heap.
// Messages from the cursor on have never been delivered, and are due. The heap orders delivered,
// unsettled messages by the time at which they are due again. Of all due messages, the one with the
// lowest position is delivered first.
//
// The log drops a message once every group has settled it and all earlier messages, and it is older
// than [backend.TopicSettings].Keep. A single message with a long delay therefore keeps all messages
// stored after it. A topic without groups keeps all messages, up to the limits in [Options].
package inmemory

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A Backend keeps topics in memory. Publish refuses a message with [backend.ErrFull] if it would
// exceed a limit of [Options], or with [backend.ErrTooLarge] if the message alone is larger than
// MaxBytes. One call of Publish can store some messages and refuse others. Stored messages are
// never dropped.
type Backend struct {
	options Options
	totals  totals

	mu     sync.Mutex        // guards the fields below; taken before a topic's lock
	topics map[string]*topic // nil after Close
	unused uint64            // the first offset of a new topic; a deleted topic had only lower ones
}

var _ backend.Limited = (*Backend)(nil)

// New returns an empty backend.
func New(o Options) *Backend {
	o = o.withDefaults()
	return &Backend{
		options: o,
		totals:  totals{maxMessages: o.MaxMessages, maxBytes: o.MaxBytes, ephemeralGroups: map[*group]struct{}{}},
		topics:  map[string]*topic{},
		unused:  1,
	}
}

// acquire locks a topic and returns it. The caller unlocks it by [topic.unlock]. If the
// topic is missing, acquire creates it, or returns [backend.ErrGone] unless create is set.
func (b *Backend) acquire(name string, create bool) (*topic, error) {
	for {
		b.mu.Lock()
		t, closed := b.topics[name], b.topics == nil
		if t == nil && create && !closed {
			t = &topic{totals: &b.totals, name: name, groups: map[string]*group{}}
			t.log.first, t.once.window = b.unused, b.options.OnceWindow
			b.topics[name] = t
		}
		b.mu.Unlock()
		switch {
		case closed:
			return nil, backend.ErrClosed
		case t == nil:
			return nil, backend.ErrGone
		}
		if t.mu.Lock(); t.groups != nil {
			return t, nil
		}
		t.mu.Unlock() // the topic was deleted in the meantime, so look it up again
	}
}

// Publish implements [backend.Backend]. A Read or Receive of another goroutine sees all or
// none of the stored messages of a topic.
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	if err := ctx.Err(); err != nil {
		return failed(fmt.Errorf("%w: %w", backend.ErrUnavailable, err), "publish")
	}
	order := byTopic(msgs)
	at := func(i int) int {
		if order == nil {
			return i
		}
		return order[i]
	}
	records := make([]*record, 0, 8)
	for i := range msgs {
		r := &record{message: *msgs[at(i)]}
		r.message.Once, r.message.OnceKey = false, ""
		records = append(records, r)
	}
	message := func(i int) *backend.Message { return &records[i].message }
	copyPayloads(len(msgs), message) // without the lock of a topic
	if order != nil {
		copyTexts(len(msgs), message)
	}
	var errs backend.BatchError
	for i := 0; i < len(msgs); {
		t, err := b.acquire(records[i].message.Topic, true)
		if err != nil {
			errs.Set(at(i), len(msgs), failed(err, "publish", records[i].message.Topic))
			i++
			continue
		}
		for now := t.log.now(); i < len(msgs) && records[i].message.Topic == t.name; i++ {
			records[i].stored = now
			errs.Set(at(i), len(msgs), failed(t.store(msgs[at(i)], records[i]), "publish", t.name))
		}
		t.unlock()
	}
	return backend.AsBatchError(errs)
}

// byTopic returns the indexes of msgs in an order that groups the messages by topic, or nil if
// they already are. Each topic is then locked once, and its messages are close together in
// memory.
func byTopic(msgs []*backend.Message) (order []int) {
	if !slices.ContainsFunc(msgs, func(m *backend.Message) bool { return m.Topic != msgs[0].Topic }) {
		return nil
	}
	topics, places := map[string]int{}, [][]int{}
	for i, m := range msgs {
		n, known := topics[m.Topic]
		if !known {
			n = len(places)
			topics[m.Topic], places = n, append(places, nil)
		}
		places[n] = append(places[n], i)
	}
	if order = slices.Concat(places...); slices.IsSorted(order) {
		return nil
	}
	return order
}

// Limits implements [backend.Limited].
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{
		Payload:    int(min(b.options.MaxBytes, math.MaxInt)),
		OnceWindow: b.options.OnceWindow,
		Refund:     true,
		FencedAcks: true,
		Instances:  true,
		Ephemeral:  true,
		Settings:   backend.Supported{Keep: true, MaxMessages: true, MaxBytes: true},
		Publishers: -1,
	}
}

// WaitSettled waits until no group of any topic has an unsettled message. Messages in the
// backlog, held messages and delayed messages are unsettled. WaitSettled fails if ctx is
// done or the Backend is closed. It is meant for tests.
func (b *Backend) WaitSettled(ctx context.Context) (err error) {
	select {
	case <-b.totals.whenSettled():
		if b.totals.closed.Load() {
			err = backend.ErrClosed
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	return failed(err, "wait", "until settled")
}

// Close implements [backend.Backend]. All stored messages are lost. For each group with
// unsettled messages it sends a notice to the member that attached last.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totals.closed.Store(true)
	for _, t := range b.topics {
		for _, lost := range t.lossNotices() {
			lost()
		}
		t.end(backend.ErrClosed)
	}
	b.topics = nil
	return nil
}

// failed puts the words that name the failed call before the text of err. It returns nil if
// err is nil.
func failed(err error, call ...string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("inmemory: %s: %w", strings.Join(call, " "), err)
}
