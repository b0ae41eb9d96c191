package redisstream_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// Payloads of any size arrive unchanged, alone and together, and each belongs to its
// receiver.
func TestPayloadsOfAnySize(t *testing.T) {
	t.Parallel()
	for name, o := range map[string][]redistest.Option{"plain": nil, "TLS": {redistest.TLS()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, redistest.Start(t, o...).Client(t), redisstream.Options{})
			s := attach(t, b, config())
			var ms []*backend.Message
			for _, size := range []int{0, 1, 4000, 4 << 10, 5 << 10, 16<<10 - 1, 16 << 10, 64 << 10, 300 << 10, 1 << 20, 5 << 20} {
				m := &backend.Message{Topic: topic, ID: fmt.Sprint(size), Payload: bytes.Repeat([]byte("0123456789"), size/10+1)[:size]}
				publish(t, b, []*backend.Message{m})
				ms = append(ms, m)
			}
			publish(t, b, ms)
			ds := receive(t, s, 2*len(ms))
			for i, d := range ds {
				want := ms[i%len(ms)]
				require.Equal(t, want.ID, d.ID)
				require.True(t, bytes.Equal(want.Payload, d.Payload), "payload of %s bytes", d.ID)
				clear(append(d.Payload, "more"...)[:len(d.Payload)])
				clear(d.Payload)
			}
			require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
			all := stored(t, b)
			require.Len(t, all, 2*len(ms))
			for i, m := range all {
				require.True(t, bytes.Equal(ms[i%len(ms)].Payload, m.Payload), "payload of %s bytes", m.ID)
			}
		})
	}
}

// Once a member knows that events are large, a read asks for few. redis-server makes a
// whole reply before it sends it, and serves no other client meanwhile.
func TestLargeEventsAreReadByFew(t *testing.T) {
	t.Parallel()
	b := open(t, redistest.Start(t).Client(t), redisstream.Options{})
	s := attach(t, b, config())
	read := func(most, want int) {
		ds, err := s.Receive(t.Context(), most, 0)
		require.NoError(t, err)
		require.Len(t, ds, want)
		require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	}
	for _, row := range []struct{ size, together int }{{16 << 10, 31}, {900 << 10, 8}, {10 << 10, 50}} {
		large := batch(fmt.Sprint(row.size), 1+row.together+1)
		for _, m := range large {
			m.Payload = make([]byte, row.size)
		}
		publish(t, b, large)
		read(1, 1)
		read(500, row.together)
		read(500, 1)
	}
	publish(t, b, batch("small", 1000))
	read(1, 1)
	read(500, 500)
}
