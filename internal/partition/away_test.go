package partition

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// A mute backend fails the calls for one topic.
type mute struct {
	*inmemory.Backend
	topic string
	fails atomic.Bool
	after int // notes until they fail; 0: for ever
}

func (m *mute) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	if topic == m.topic && m.fails.Load() {
		return nil, backend.ErrUnavailable
	}
	return m.Backend.Read(ctx, topic, from, limit)
}

func (m *mute) Publish(ctx context.Context, ms []*backend.Message) error {
	if ms[0].Topic == m.topic && m.fails.Load() {
		return backend.ErrUnavailable
	}
	err := m.Backend.Publish(ctx, ms)
	if ms[0].Topic == m.topic {
		if m.after--; m.after == 0 {
			m.fails.Store(true)
		}
	}
	return err
}

// While members cannot read the notes of others, one of them takes the partitions that are free. When
// they can, shares are right again.
func TestFreePartitionsWhileNotesAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := MembersTopic("orders")
		b := &mute{Backend: inmemory.New(inmemory.Options{}), topic: topic}
		b2 := &mute{Backend: b.Backend, topic: topic, after: 2}
		first, second := &shedding{}, &troubledOwner{}
		first.shed = func() { b.fails.Store(true) } // no member reads notes from here on
		c, err := Open(t.Context(), Config{
			Backend: b, Topic: "orders", Group: "g", Number: 4, Lease: 10 * time.Second,
			Notify: first.notify, Owner: first, Guard: func(_ string, f func() error) error { return f() },
		})
		require.NoError(t, err)
		first.Coordinator = c
		c.Start()
		time.Sleep(10 * time.Second)
		require.Len(t, first.Owned(), 4)
		time.Sleep(200 * time.Millisecond)
		open(t, b2, second)
		time.Sleep(10 * time.Second)
		require.Equal(t, 4, len(first.Owned())+len(second.Owned()))
		b.fails.Store(false)
		b2.fails.Store(false)
		time.Sleep(10 * time.Second)
		require.Len(t, first.Owned(), 2)
		require.Len(t, second.Owned(), 2)
		require.NoError(t, first.Close(context.WithoutCancel(t.Context())))
		require.NoError(t, second.Close(context.WithoutCancel(t.Context())))
	})
}

// A shedding owner calls shed before it gives a partition to another member.
type shedding struct {
	troubledOwner
	shed func()
}

func (o *shedding) Shed(c *Claim) {
	if !o.Coordinator.drains {
		o.shed()
	}
	o.idleOwner.Shed(c)
}
