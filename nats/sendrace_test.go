package nats_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/nats"
)

// A call ends when its last sent word is answered, even if further words were not sent. The
// sender must not read these words then, because the next call uses their memory.
func TestUnsentWordsAreNotRead(t *testing.T) { // finds the fault only with -race
	t.Parallel()
	p := newPlace(t, nats.Options{})
	s, err := p.b.Attach(t.Context(), member())
	require.NoError(t, err)
	require.NoError(t, p.b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
	ds, err := s.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	const many = 1000
	one, all := make([]*backend.Delivery, many), make([]*backend.Delivery, many)
	for i := range many {
		one[i], all[i] = new(backend.Delivery), &ds[0]
	}
	one[0] = &ds[0]
	for range 50 {
		err := s.(backend.Extender).Extend(t.Context(), one)
		require.NoError(t, backend.ErrorAt(err, 0))
		require.ErrorIs(t, backend.ErrorAt(err, many-1), backend.ErrRefused)
		require.NoError(t, s.(backend.Extender).Extend(t.Context(), all))
	}
}
