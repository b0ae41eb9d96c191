package eventbus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/inmemory"
)

// A backend of your own needs six methods: here, the methods of shelf and seat. Without optional
// interfaces the bus counts attempts itself, and a retry runs when the lease ends. Because a seat
// cannot extend leases, Timeout must be shorter than Lease.
func Example_backend() {
	ctx := context.Background()
	bus, err := eventbus.New(newShelf(), eventbus.Options{})
	if err != nil {
		panic(err)
	}

	attempts := make(chan int, 2)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{
		Group: "billing", Lease: time.Second / 2, Timeout: time.Second / 4,
	}, func(_ context.Context, d *eventbus.Delivery) error {
		attempts <- d.Attempt
		if d.Attempt == 1 {
			return errors.New("once more")
		}
		return nil
	})
	fmt.Println("subscribed:", err)
	fmt.Println("published:", bus.Publish(ctx, "orders", &eventbus.Event{}))
	fmt.Println("attempts:", <-attempts, <-attempts)
	fmt.Println("ended:", bus.Shutdown(ctx))
	// Output:
	// subscribed: <nil>
	// published: <nil>
	// attempts: 1 2
	// ended: <nil>
}

// A shelf is a small backend: it has a log for each topic, and for each group the time from which
// each message is due. Its groups begin with the earliest message.
type shelf struct {
	mu     sync.Mutex
	topics map[string][][]byte
	due    map[string]time.Time // by group, topic and position
}

func newShelf() *shelf {
	return &shelf{topics: map[string][][]byte{}, due: map[string]time.Time{}}
}

// Publish stores copies of the messages, because they belong to the caller.
func (s *shelf) Publish(_ context.Context, msgs []*backend.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range msgs {
		m.Position = fmt.Sprintf("%016d", len(s.topics[m.Topic]))
		stored, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("shelf: publish %s: %w", m.Topic, err)
		}
		s.topics[m.Topic] = append(s.topics[m.Topic], stored)
	}
	return nil
}

// Attach adds a member to a group.
func (s *shelf) Attach(_ context.Context, c backend.Config) (backend.Source, error) {
	return seat{shelf: s, Config: c}, nil
}

// Close closes a shelf or a seat; there is nothing to free.
func (s *shelf) Close() error { return nil }

// A seat is one member of a group on a [shelf].
type seat struct {
	*shelf
	backend.Config
}

// Receive waits until a message is due, and makes it due again one lease later.
func (s seat) Receive(ctx context.Context, limit int, maxBytes int64) (ds []backend.Delivery, err error) {
	for ; len(ds) == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		ds = s.take(limit)
	}
	return ds, ctx.Err()
}

func (s seat) take(limit int) (ds []backend.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, stored := range s.topics[s.Topic] {
		at := fmt.Sprintf("%s/%s/%d", s.Group, s.Topic, i)
		if len(ds) < limit && time.Now().After(s.due[at]) {
			d := backend.Delivery{Token: at}
			d.Err = json.Unmarshal(stored, &d.Message)
			s.due[at] = time.Now().Add(s.Lease)
			ds = append(ds, d)
		}
	}
	return ds
}

// Ack removes deliveries from the group.
func (s seat) Ack(_ context.Context, ds []*backend.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		s.due[d.Token.(string)] = time.Unix(1<<40, 0)
	}
	return nil
}

// A tenant is a backend on top of another one: it separates tenants by a prefix of their topics.
// Close closes the backend below.
type tenant struct {
	backend.Backend
	prefix string
}

func (t tenant) Publish(ctx context.Context, msgs []*backend.Message) error {
	for _, m := range msgs {
		m.Topic = t.prefix + m.Topic
		defer func() { m.Topic = m.Topic[len(t.prefix):] }() // the message is lent
	}
	return t.Backend.Publish(ctx, msgs)
}

func (t tenant) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	c.Topic = t.prefix + c.Topic
	src, err := t.Backend.Attach(ctx, c)
	return tenantSource{src, t.prefix}, err
}

// A tenantSource acknowledges and closes like the source below. The bus finds the optional
// interfaces of that source by Unwrap, so a tenant can delay and extend.
type tenantSource struct {
	backend.Source
	prefix string
}

func (s tenantSource) Unwrap() backend.Source { return s.Source }

func (s tenantSource) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := s.Source.Receive(ctx, limit, maxBytes)
	for i := range ds {
		ds[i].Topic = strings.TrimPrefix(ds[i].Topic, s.prefix)
	}
	return ds, err
}

func Example_tenant() {
	ctx := context.Background()
	bus, err := eventbus.New(tenant{inmemory.New(inmemory.Options{}), "acme."}, eventbus.Options{})
	if err != nil {
		panic(err)
	}
	receipts, err := bus.PublishReceipts(ctx, "orders", &eventbus.Event{ID: "1"})
	fmt.Println(err, receipts[0].Position, bus.Shutdown(ctx))
	// Output: <nil> 0000000000000001 <nil>
}

// The tenant passes the conformance suite.
func TestTenantConformance(t *testing.T) {
	conformance.Run(t, conformance.Suite{
		Name: "tenant",
		New: func(t *testing.T) backend.Backend {
			b := inmemory.New(inmemory.Options{})
			t.Cleanup(func() { _ = b.Close() })
			return tenant{b, "acme."}
		},
		Lease:  30 * time.Second,
		Around: synctest.Test,
	})
}
