package inmemory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// What publishing, receiving and settling allocate depends on the calls, not on how
// many messages they have.
func TestAllocationsArePerCallNotPerMessage(t *testing.T) {
	const messages = 256
	ctx := t.Context()
	b := New(Options{})
	s, err := b.Attach(ctx, backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	msgs := make([]*backend.Message, messages)
	for i := range msgs {
		msgs[i] = &backend.Message{
			Topic: "orders", ID: "019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10", Key: "customer-7",
			Headers: backend.Headers{{Name: "ce-type", Value: "order.placed"}, {Name: "ce-time", Value: "2026-11-21T10:30:00.123456789Z"}},
			Payload: make([]byte, 256),
		}
	}
	allocs := testing.AllocsPerRun(100, func() {
		if err := b.Publish(ctx, msgs); err != nil {
			t.Fatal(err)
		}
		for left := messages; left > 0; {
			ds, err := s.Receive(ctx, messages)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Ack(ctx, ds); err != nil {
				t.Fatal(err)
			}
			left -= len(ds)
		}
	})
	t.Logf("%.0f allocations for %d messages", allocs, messages)
	require.LessOrEqual(t, allocs, 24.0, "allocations for %d messages published, received and settled", messages)
	require.NoError(t, s.Close())
	require.NoError(t, b.Close())
}
