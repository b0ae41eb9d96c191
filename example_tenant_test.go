package eventbus_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// A tenant is a backend on top of another: a prefix separates its topics from other
// tenants' topics. Close closes the backend below.
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
// verbs of that source by Unwrap, so a tenant can delay and extend.
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
