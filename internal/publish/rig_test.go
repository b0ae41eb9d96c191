package publish

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// A rig is a Publisher on an in-memory backend, in a synctest bubble.
type rig struct {
	*testing.T
	*Publisher
	broker *broker
}

// inBubble runs f on a new rig whose backend states slots as Limits.Publishers, and then closes it.
func inBubble(t *testing.T, slots int, o Options, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slots, o)
		f(r)
		require.NoError(t, r.Close(t.Context()))
	})
}

func newRig(t *testing.T, slots int, o Options) *rig {
	b := &broker{Backend: inmemory.New(inmemory.Options{}), slots: slots}
	o.NewBackoff = func() func() time.Duration {
		next := 100 * time.Millisecond
		return func() time.Duration {
			d := next
			next = min(next+next/2, time.Minute)
			return d
		}
	}
	return &rig{T: t, Publisher: New(b, o), broker: b}
}

// topic returns the IDs of the stored messages, in order.
func (r *rig) topic() (ids []string) { return r.stored("t") }

func (r *rig) stored(topic string) (ids []string) {
	ms, err := r.broker.Backend.Read(r.Context(), topic, "", 1<<20)
	require.NoError(r, err)
	for _, m := range ms {
		ids = append(ids, m.ID)
	}
	return ids
}

// queued returns how many calls wait in the queue.
func (r *rig) queued() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue.calls)
}

// one returns a single message, for a call.
func one(id string) []*backend.Message {
	return []*backend.Message{{Topic: "t", ID: id, Payload: []byte(id)}}
}

// to returns a single message with a topic and a key, for a call.
func to(topic, key, id string) []*backend.Message {
	return []*backend.Message{{Topic: topic, Key: key, ID: id}}
}

// many returns n messages with one key, for a call.
func many(n int) (msgs []*backend.Message) {
	for i := range n {
		msgs = append(msgs, &backend.Message{Topic: "t", ID: fmt.Sprint(i), Key: "k", Once: true})
	}
	return msgs
}

// A broker is a backend whose Publish takes a while, can be made to fail, and returns as
// soon as its context is done.
type broker struct {
	*inmemory.Backend
	slots int

	mu      sync.Mutex
	takes   time.Duration
	slow    map[string]time.Duration // how long a call with a message of a topic takes, if longer
	hangs   int                      // how many of the next calls take an hour
	hung    int                      // messages of calls that have hung
	fails   error
	bad     map[string]error // by topic of the first message
	panics  any
	stored  func() // called at the end of each call
	sizes   []int
	ids     [][]string
	lent    []byte // the payload of the last call
	now     int    // calls under way
	mostNow int
}

func (b *broker) Limits() backend.Limits {
	return backend.Limits{OnceWindow: time.Hour, Publishers: b.slots}
}

func (b *broker) Publish(ctx context.Context, msgs []*backend.Message) error {
	takes, panics, stored, fails := b.begin(msgs)
	defer b.end()
	if takes > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, ctx.Err())
		case <-time.After(takes):
		}
	}
	if panics != nil {
		panic(panics)
	}
	if fails != nil {
		return fails
	}
	if stored != nil {
		defer stored()
	}
	return b.Backend.Publish(ctx, msgs)
}

func (b *broker) begin(msgs []*backend.Message) (takes time.Duration, panics any, stored func(), fails error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now++
	b.mostNow = max(b.mostNow, b.now)
	b.sizes = append(b.sizes, len(msgs))
	b.lent = msgs[0].Payload
	var ids []string
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	b.ids = append(b.ids, ids)
	takes = b.takes
	for _, m := range msgs {
		takes = max(takes, b.slow[m.Topic])
	}
	if b.hangs > 0 {
		b.hangs--
		b.hung += len(msgs)
		takes = time.Hour
	}
	return takes, b.panics, b.stored, cmp.Or(b.bad[msgs[0].Topic], b.fails)
}

func (b *broker) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now--
}

// set changes the behavior of the broker from now on.
func (b *broker) set(change func(b *broker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

func (b *broker) fail(err error) { b.set(func(b *broker) { b.fails = err }) }

func (b *broker) take(d time.Duration) { b.set(func(b *broker) { b.takes = d }) }

// calls returns how many messages each call contained.
func (b *broker) calls() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sizes)
}
