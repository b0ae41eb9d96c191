package nats_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// Any time can be the start of a group and of a Read.
func TestStartAtAnyTime(t *testing.T) {
	ownAndShared(t, func(t *testing.T, o nats.Options, _ string) {
		w := watch(t, newFixture(t, o))
		w.publish("other", 3)
		w.publish("orders", 5)
		for i, row := range []struct {
			at   time.Time
			want int
		}{
			{time.Time{}, 5},
			{time.Unix(0, 0), 5},
			{time.Now().Add(-time.Hour), 5},
			{time.Now().Add(time.Hour), 0},
			{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 0},
		} {
			ms, err := w.b.Read(t.Context(), "orders", backend.StartAt(row.at), 100)
			require.NoError(t, err)
			require.Len(t, ms, row.want, row.at)
			c := member()
			c.Group, c.Start = fmt.Sprint("g", i), backend.StartAt(row.at)
			src, err := w.b.Attach(t.Context(), c)
			require.NoError(t, err)
			ds, err := src.Receive(t.Context(), 100, 0)
			require.NoError(t, err)
			require.Len(t, ds, row.want, row.at)
		}
		_, err := w.b.Read(t.Context(), "orders", "noon", 1)
		require.ErrorIs(t, err, backend.ErrRefused)
	})
}

// A time in a topic with removed messages is found, in its own and in a shared stream.
func TestReadAtWithHoles(t *testing.T) {
	ownAndShared(t, func(t *testing.T, o nats.Options, _ string) {
		w := watch(t, newFixture(t, o))
		var times []time.Time
		var places []string
		for range 30 {
			now, err := w.b.Now(t.Context(), "orders")
			require.NoError(t, err)
			times = append(times, now)
			places = append(places, w.publish("orders", 1)[0].Position)
			w.publish("other", 1)
		}
		var gone []string
		for i, p := range places {
			if i%3 == 1 || i > 10 && i < 20 {
				gone = append(gone, p)
			}
		}
		require.NoError(t, w.b.Remove(t.Context(), "orders", gone))
		for i, at := range times {
			want := 0
			for j := i; j < len(places); j++ {
				if !(j%3 == 1 || j > 10 && j < 20) {
					want++
				}
			}
			ms, err := w.b.Read(t.Context(), "orders", backend.StartAt(at), 100)
			require.NoError(t, err)
			require.Len(t, ms, want, "from message %d", i)
		}
	})
}

// A Read asks for many messages at a time, however they lie in the stream: closely, far apart
// among those of other topics, or around many that were removed. One after another, these 600
// would take 600 round trips of 20 ms each.
func TestReadTakesFewRoundTrips(t *testing.T) {
	ownAndShared(t, func(t *testing.T, o nats.Options, _ string) {
		r := new(rig)
		b := r.open(t, o, alone(natstest.Start(t)))
		publish := func(topic string, n int) (positions []string) {
			ms := make([]*backend.Message, n)
			for i := range ms {
				ms[i] = &backend.Message{Topic: topic, ID: fmt.Sprint(topic, i)}
			}
			require.NoError(t, b.Publish(t.Context(), ms))
			for _, m := range ms {
				positions = append(positions, m.Position)
			}
			return positions
		}
		want := publish("orders", 200)
		publish("other", 2000)
		for range 100 {
			want = append(want, publish("orders", 1)...)
			publish("other", 20)
		}
		removed := publish("orders", 1000)
		want = append(want, publish("orders", 300)...)
		require.NoError(t, backend.Remove(t.Context(), b, "orders", removed))
		r.Each(b, func(p *faultproxy.Proxy) { p.Delay(10*time.Millisecond, 0) })
		for _, limit := range []int{1, 2, 250, 600, 5000} {
			began, before := time.Now(), r.Link(b).conn.Stats().OutMsgs
			ms, err := backend.Read(t.Context(), b, "orders", backend.StartEarliest, limit)
			require.NoError(t, err)
			require.Len(t, ms, min(limit, len(want)))
			for i, m := range ms {
				require.Equal(t, want[i], m.Position, "message %d of %d", i, limit)
			}
			took, requests := time.Since(began), r.Link(b).conn.Stats().OutMsgs-before
			t.Logf("%d messages: %v, %d requests", len(ms), took, requests)
			require.Less(t, took, 4*time.Second, "%d messages", len(ms))
		}
	})
}
