package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/lifecycle"
)

// A process keeps its newest MaxRecords, and a tenth. A process that starts later removes the
// records that are left from others. Events that are no records stay.
func TestTopicsAreCapped(t *testing.T) {
	onEach(t, func(t *testing.T, b backend.Backend) {
		const most = 100
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders.lifecycle", ID: "a user's event"}}))
		start := func() *lifecycle.Recorder {
			r := lifecycle.New(lifecycle.Options{MaxRecords: most})
			require.NoError(t, r.Start(t.Context(), b))
			return r
		}
		depth := func(topic string) int {
			ms, err := backend.Read(t.Context(), b, topic, "", 100_000)
			require.NoError(t, err)
			return len(ms)
		}
		for range 5 { // processes, one after another
			r := start()
			for i := range 20 {
				tell(r.Observer(), "orders", 33)
				tell(r.Observer(), "refunds", i%2)
			}
			require.NoError(t, r.Close(t.Context()))
			require.Zero(t, r.Dropped())
			require.LessOrEqual(t, depth("orders.lifecycle"), most+most/10+1)
			require.GreaterOrEqual(t, depth("orders.lifecycle"), most+1)
		}
		require.Equal(t, 50, depth("refunds.lifecycle"))
		ms, err := backend.Read(t.Context(), b, "orders.lifecycle", "", 1)
		require.NoError(t, err)
		require.Equal(t, "a user's event", ms[0].ID)

		one, other := start(), start() // processes at the same time
		for range 20 {
			tell(one.Observer(), "orders", 33)
			tell(other.Observer(), "orders", 33)
		}
		require.NoError(t, one.Close(t.Context()))
		require.NoError(t, other.Close(t.Context()))
		require.LessOrEqual(t, depth("orders.lifecycle"), 2*(most+most/10)+1)
		last := start()
		tell(last.Observer(), "orders", 1)
		require.NoError(t, last.Close(t.Context()))
		require.LessOrEqual(t, depth("orders.lifecycle"), most+most/10+1)
	})
}

// The newest records stay.
func TestTheNewestRecordsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		r := lifecycle.New(lifecycle.Options{MaxRecords: 10})
		require.NoError(t, r.Start(t.Context(), b))
		for n := range 20 {
			tell(r.Observer(), "orders", n)
			synctest.Wait()
		}
		require.NoError(t, r.Close(t.Context()))
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprintf("active %d #1 ", 9+i))
		}
		got := lines(records(t, b, "orders"))
		require.Equal(t, want, got[len(got)-10:])
		require.LessOrEqual(t, len(got), 11)
	})
}

// A record whose outcome is unknown counts if it was stored.
func TestUnknownOutcomesAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		r := lifecycle.New(lifecycle.Options{MaxRecords: 10, OnDrop: func(int64, error) {}})
		u := &unknown{lasting: lasting{b}}
		require.NoError(t, r.Start(t.Context(), u))
		for range 10 {
			tell(r.Observer(), "orders", 20)
			synctest.Wait()
		}
		u.known = true
		tell(r.Observer(), "orders", 1)
		require.NoError(t, r.Close(t.Context()))
		require.EqualValues(t, 200, r.Dropped())
		require.LessOrEqual(t, len(records(t, b, "orders")), 11)
	})
}

// An unknown is a backend that stores messages, and says that it may not have stored them.
type unknown struct {
	lasting
	known bool
}

func (u *unknown) Publish(ctx context.Context, msgs []*backend.Message) error {
	err := u.Backend.Publish(ctx, msgs)
	if err == nil && !u.known {
		return errors.Join(backend.ErrUnknownOutcome, errBroken)
	}
	return err
}
