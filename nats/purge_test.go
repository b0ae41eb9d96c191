package nats_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// A purge considers every group, although groups come and go while it reads the pages of a
// long list. Messages that a group has not settled stay.
func TestPurgeSeesEveryGroup(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nats.Options{Stream: "events"})
	b, config := p.b, streamConfig()
	config.Name, config.Subjects, config.MaxConsumers = "events", []string{"bus.>"}, 5000
	_, err := p.js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	attach := func(topic, group string) backend.Source {
		s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Minute})
		require.NoError(t, err)
		return s
	}
	// A page has 1,024 names: the slow group is the first of the second page.
	for i := range 1022 {
		require.NoError(t, attach(fmt.Sprintf("f%04d", i), "g").Close())
	}
	fast := attach("v", "fast")
	require.NoError(t, attach("v", "slow").Close())
	var ms []*backend.Message
	for i := range 10 {
		ms = append(ms, &backend.Message{Topic: "v", ID: fmt.Sprint(i)})
	}
	require.NoError(t, b.Publish(t.Context(), ms))
	ds, err := fast.Receive(t.Context(), 10, 0)
	require.NoError(t, err)
	require.NoError(t, fast.Ack(t.Context(), backend.Lend(ds)))

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // a group that sorts first comes and goes
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			s, err := b.Attach(t.Context(), backend.Config{Topic: "a", Group: "g", Lease: time.Minute})
			if err == nil {
				_ = s.Close()
				err = b.DeleteGroup(t.Context(), "a", "g")
			}
			if err != nil {
				t.Errorf("a group that comes and goes: %v", err)
				return
			}
		}
	}()
	for range 60 {
		if _, err := b.Maintain(t.Context(), "v", "fast"); err != nil {
			require.ErrorIs(t, err, backend.ErrUnavailable)
		}
	}
	close(stop)
	<-stopped
	stats, err := b.Stats(t.Context(), "v", "slow")
	require.NoError(t, err)
	require.EqualValues(t, 10, stats.Depth)
	require.EqualValues(t, 10, stats.Lag)
}

// Of two leases set at the same time the longer may be overwritten. Maintain sets it
// again.
func TestLeaseIsRaisedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nats.Options{})
	b, _ := nats.New(p.conn, nats.Options{})
	s, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Minute})
	require.NoError(t, err)
	c, err := p.js.Consumer(t.Context(), ordersStream, "g")
	require.NoError(t, err)
	config := c.CachedInfo().Config
	config.AckWait = 10 * time.Second
	_, err = p.js.UpdateConsumer(t.Context(), ordersStream, config)
	require.NoError(t, err)
	_, err = b.Maintain(t.Context(), "orders", "g")
	require.NoError(t, err)
	c, err = p.js.Consumer(t.Context(), ordersStream, "g")
	require.NoError(t, err)
	require.Equal(t, time.Minute, c.CachedInfo().Config.AckWait)
	require.NoError(t, s.Close())
	require.NoError(t, b.Close())
}

// A purge does not make the server forget due messages: they are redelivered at once, not
// when their lease expires.
func TestPurgeForgetsNothingThatIsDue(t *testing.T) {
	t.Parallel()
	b, err := as(t, natstest.Start(t), "")
	require.NoError(t, err)
	s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: 5 * time.Minute})
	require.NoError(t, err)
	var ms []*backend.Message
	for range 20 {
		ms = append(ms, &backend.Message{Topic: topic})
	}
	require.NoError(t, b.Publish(t.Context(), ms))
	ds, err := s.Receive(t.Context(), 20, 0)
	require.NoError(t, err)
	require.Len(t, ds, 20)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds[:10])))
	var later []backend.Delayed
	for _, d := range ds[10:] {
		later = append(later, backend.Delayed{Delivery: d, For: time.Millisecond})
	}
	require.NoError(t, s.(backend.Delayer).Delay(t.Context(), later))
	<-time.After(300 * time.Millisecond) // most likely due by now
	_, err = b.Maintain(t.Context(), topic, group)
	require.NoError(t, err)
	back := 0
	for start := time.Now(); back < 10 && time.Since(start) < time.Minute; {
		ds, err := s.Receive(t.Context(), 20, 0)
		require.NoError(t, err)
		back += len(ds)
	}
	require.Equal(t, 10, back)
	require.NoError(t, s.Ack(t.Context(), nil))
}
