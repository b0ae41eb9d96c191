package partition

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// A member whose calls fail for a moment repeats them, is Degraded meanwhile, and not any longer.
func TestTroublesEnd(t *testing.T) {
	for _, call := range []string{"Receive", "Extend", "Delay"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &unwilling{Backend: inmemory.New(inmemory.Options{})}
				first := &troubledOwner{}
				open(t, b, first)
				time.Sleep(10 * time.Second)
				require.Len(t, first.Owned(), 4)
				b.fail(call, 2)
				second := &troubledOwner{}
				open(t, b, second) // it gets two partitions of the first
				time.Sleep(15 * time.Second)
				require.Zero(t, b.left.Load(), "the calls fail in this test")
				require.Len(t, first.Owned(), 2)
				require.Len(t, second.Owned(), 2)
				require.Positive(t, first.troubles.Load()+second.troubles.Load())
				require.False(t, first.troubled.Load())
				require.False(t, second.troubled.Load())
				require.NoError(t, first.Close(context.WithoutCancel(t.Context())))
				require.NoError(t, second.Close(context.WithoutCancel(t.Context())))
			})
		})
	}
}

// A token that cannot be given back for good is due when its lease has ended.
func TestGiveBackEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &unwilling{Backend: inmemory.New(inmemory.Options{})}
		first, second := &troubledOwner{}, &troubledOwner{}
		open(t, b, first)
		time.Sleep(10 * time.Second)
		b.fail("Delay", 1e9)
		open(t, b, second)
		time.Sleep(35 * time.Second)
		require.Len(t, first.Owned(), 2)
		require.Len(t, second.Owned(), 2)
		require.False(t, first.troubled.Load())
		require.NoError(t, first.Close(context.WithoutCancel(t.Context())))
		require.NoError(t, second.Close(context.WithoutCancel(t.Context())))
	})
}

// If an operator pauses the group of the owners, each member says so once, and asks no more than
// once a second until it is resumed.
func TestPausedOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &unwilling{Backend: inmemory.New(inmemory.Options{})}
		o := &troubledOwner{}
		open(t, b, o)
		time.Sleep(10 * time.Second)
		require.NoError(t, b.Pause(t.Context(), OwnersTopic("orders"), "g", backend.Pause{By: "ops", Why: "repair"}))
		late := &troubledOwner{}
		open(t, b, late)
		before := b.receives.Load()
		time.Sleep(20 * time.Second)
		require.LessOrEqual(t, b.receives.Load()-before, int64(2*21))
		require.Empty(t, late.Owned())
		require.Len(t, late.said(), 1)
		require.Equal(t, OwnersTopic("orders"), late.said()[0].Topic)
		require.ErrorIs(t, late.said()[0].Err, backend.ErrPaused)
		require.False(t, late.troubled.Load(), "it is the will of an operator")
		require.NoError(t, b.Resume(t.Context(), OwnersTopic("orders"), "g"))
		time.Sleep(5 * time.Second)
		require.Len(t, late.Owned(), 2)
		require.Len(t, late.said(), 1)
		require.NoError(t, o.Close(context.WithoutCancel(t.Context())))
		require.NoError(t, late.Close(context.WithoutCancel(t.Context())))
	})
}

// A troubledOwner knows whether it has a trouble, and how many it had.
type troubledOwner struct {
	idleOwner
	troubled atomic.Bool
	troubles atomic.Int64

	mu      sync.Mutex
	notices []backend.Notice
}

func (o *troubledOwner) Troubled(err error) {
	o.troubled.Store(err != nil)
	if err != nil {
		o.troubles.Add(1)
	}
}

func (o *troubledOwner) notify(n backend.Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notices = append(o.notices, n)
}

func (o *troubledOwner) said() []backend.Notice {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.notices
}

func open(t *testing.T, b backend.Backend, o *troubledOwner) {
	c, err := Open(t.Context(), Config{Backend: b, Topic: "orders", Group: "g", Number: 4, Lease: 10 * time.Second, Notify: o.notify, Owner: o, Guard: func(_ string, f func() error) error { return f() }})
	require.NoError(t, err)
	o.Coordinator = c
	c.Start()
}

// An unwilling backend fails some calls for tokens.
type unwilling struct {
	*inmemory.Backend
	receives atomic.Int64

	call atomic.Value // string
	left atomic.Int64 // how many calls fail
}

func (u *unwilling) fail(call string, n int64) {
	u.call.Store(call)
	u.left.Store(n)
}

func (u *unwilling) fails(call string) bool {
	if u.call.Load() != call {
		return false
	}
	if u.left.Add(-1) >= 0 {
		return true
	}
	u.left.Store(0)
	return false
}

func (u *unwilling) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := u.Backend.Attach(ctx, c)
	if err != nil || c.Topic != OwnersTopic("orders") {
		return s, err
	}
	extender, _ := backend.As[backend.Extender](s)
	delayer, _ := backend.As[backend.Delayer](s)
	return unwillingSource{s, extender, delayer, u}, nil
}

type unwillingSource struct {
	backend.Source
	extender backend.Extender
	delayer  backend.Delayer
	u        *unwilling
}

func (s unwillingSource) Receive(ctx context.Context, most int, size int64) ([]backend.Delivery, error) {
	s.u.receives.Add(1)
	if s.u.fails("Receive") {
		return nil, backend.ErrUnavailable
	}
	return s.Source.Receive(ctx, most, size)
}

func (s unwillingSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	if s.u.fails("Extend") {
		return backend.ErrUnavailable
	}
	return s.extender.Extend(ctx, ds)
}

func (s unwillingSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	if s.u.fails("Delay") {
		return backend.ErrUnavailable
	}
	return s.delayer.Delay(ctx, ds)
}

// A leaderless backend cannot publish for a while, as the first topic of a cluster.
type leaderless struct {
	*inmemory.Backend
	until time.Time
}

func (l *leaderless) Publish(ctx context.Context, ms []*backend.Message) error {
	if time.Now().Before(l.until) {
		return backend.ErrUnavailable
	}
	return l.Backend.Publish(ctx, ms)
}

// If programs begin at the same time on a cluster, the topics of the number and of the owners have no
// leader for a moment. Open and Subscribe wait for it, but not for long.
func TestNewTopicsWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &leaderless{Backend: inmemory.New(inmemory.Options{}), until: time.Now().Add(3 * time.Second)}
		require.NoError(t, Agree(t.Context(), b, "orders", 4))
		b.until = time.Now().Add(3 * time.Second)
		tokens, err := openTokens(t.Context(), b, "orders", "g", 4, time.Minute, func(backend.Notice) {})
		require.NoError(t, err)
		require.NoError(t, tokens.source.Close())
		b.until = time.Now().Add(time.Hour)
		began := time.Now()
		require.ErrorIs(t, Agree(t.Context(), b, "other", 4), backend.ErrUnavailable)
		require.InDelta(t, callTime.Seconds(), time.Since(began).Seconds(), 1)
	})
}
