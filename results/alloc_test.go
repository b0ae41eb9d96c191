package results_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/results"
	"github.com/seed41896749/eventbus/store"
)

// A run without a result costs one allocation, and no call of the store.
func TestAllocations(t *testing.T) {
	s := newCounted()
	h := results.Middleware(s, results.Options{})(func(context.Context, *eventbus.Delivery) error { return nil })
	ctx, d := t.Context(), &eventbus.Delivery{Topic: "orders", Group: "billing", Event: eventbus.Event{ID: "019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10"}}
	allocs := testing.AllocsPerRun(1000, func() {
		if err := h(ctx, d); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.0f allocations for a run without a result", allocs)
	require.LessOrEqual(t, allocs, 1.0)
	require.Zero(t, s.sets)
}

func BenchmarkRunWithoutAResult(b *testing.B) {
	h := results.Middleware(store.NewMemory(store.MemoryOptions{}), results.Options{})(func(context.Context, *eventbus.Delivery) error { return nil })
	ctx, d := b.Context(), &eventbus.Delivery{}
	b.ReportAllocs()
	for b.Loop() {
		if err := h(ctx, d); err != nil {
			b.Fatal(err)
		}
	}
}
