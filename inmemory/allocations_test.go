package inmemory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// Publishing, receiving and settling one message of a batch takes at most three allocations.
func TestAllocations(t *testing.T) {
	const messages = 256
	b, s, msgs := rig(t, messages)
	allocs := testing.AllocsPerRun(100, func() {
		if err := b.Publish(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
		drain(t, s, messages)
	})
	t.Logf("%.0f allocations for %d messages", allocs, messages)
	require.LessOrEqual(t, allocs, 3.0*messages, "allocations for %d messages published, received and settled", messages)
}

// Messages published one by one share memory too.
func TestAllocationsOfSinglePublishes(t *testing.T) {
	const messages = 256
	b, s, msgs := rig(t, messages)
	allocs := testing.AllocsPerRun(100, func() {
		for i := range msgs {
			if err := b.Publish(t.Context(), msgs[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
		drain(t, s, messages)
	})
	t.Logf("%.0f allocations for %d messages", allocs, messages)
	require.LessOrEqual(t, allocs, 5.0*messages, "allocations for %d messages published one by one", messages)
}

func rig(t *testing.T, messages int) (*Backend, backend.Source, []*backend.Message) {
	b := New(Options{})
	s, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()); require.NoError(t, b.Close()) })
	msgs := make([]*backend.Message, messages)
	for i := range msgs {
		msgs[i] = &backend.Message{
			Topic: "orders", ID: "019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10", Key: "customer-7",
			Headers: backend.Headers{{Name: "ce-type", Value: "order.placed"}, {Name: "ce-time", Value: "2026-11-21T10:30:00.123456789Z"}},
			Payload: make([]byte, 256),
		}
	}
	return b, s, msgs
}

// drain receives and settles the given number of messages.
func drain(t *testing.T, s backend.Source, messages int) {
	for left := messages; left > 0; {
		ds, err := s.Receive(t.Context(), messages, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ack(t.Context(), backend.Lend(ds)); err != nil {
			t.Fatal(err)
		}
		left -= len(ds)
	}
}
