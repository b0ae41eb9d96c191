package console_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/lifecycle"
)

// A hanging backend does not answer calls with one name, until their context ends. It stores events
// before it hangs, so that their outcome is not known, and removes nothing.
type hanging struct {
	*meter
	call atomic.Pointer[string]
}

func (h *hanging) hang(ctx context.Context, call string, err error) error {
	if name := h.call.Load(); name == nil || *name != call {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) Publish(ctx context.Context, ms []*backend.Message) error {
	return h.hang(ctx, "publish", h.meter.Publish(ctx, ms))
}

func (h *hanging) Remove(ctx context.Context, topic string, positions []string) error {
	if err := h.hang(ctx, "remove", nil); err != nil {
		return err
	}
	return h.meter.Remove(ctx, topic, positions)
}

func (h *hanging) Groups(ctx context.Context, topic string) ([]string, error) {
	groups, err := h.meter.Groups(ctx, topic)
	return groups, h.hang(ctx, "groups", err)
}

func (h *hanging) Read(ctx context.Context, topic string, from backend.Start, most int) ([]backend.Message, error) {
	ms, err := h.meter.Read(ctx, topic, from, most)
	return ms, h.hang(ctx, "read", err)
}

// A slow backend takes a while for each page of events.
type slow struct {
	*meter
	page time.Duration
}

func (s *slow) Read(ctx context.Context, topic string, from backend.Start, most int) ([]backend.Message, error) {
	select {
	case <-time.After(s.page):
		return s.meter.Read(ctx, topic, from, most)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A request of a slow backend ends with the events that were read in its time, and is continued.
func TestReadingASlowBackend(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		numbered(t, m, "orders", 3000)
		v := visit(t, &slow{m, 1900 * time.Millisecond}, console.Options{})
		began := time.Now()
		p := v.page("topic?name=orders&key=key3&type=type0")
		require.Less(t, time.Since(began), 8*time.Second)
		require.NotEmpty(t, p.link("Continue the search"))
		var got []string
		for i := 3; i < 3000; i += 21 {
			got = append(got, fmt.Sprint("e-", i))
		}
		require.Equal(t, got, walk(v, "topic?name=orders&key=key3&type=type0", "Continue the search"))
	})
	inBubble(t, func(t *testing.T, m *meter) {
		numbered(t, m, "orders", 100)
		v := visit(t, &slow{m, 3500 * time.Millisecond}, console.Options{Timeout: 4 * time.Second})
		require.Equal(t, "e-0", v.page("topic?name=orders&order=oldest").ids()[0])
		require.Len(t, walk(v, "topic?name=orders&order=oldest", "Newer events"), 100)
	})
	inBubble(t, func(t *testing.T, m *meter) {
		for i := range 400 {
			note(t, m, lifecycle.Record{State: lifecycle.Completed, Group: "g", ID: fmt.Sprint("e-", i)})
			time.Sleep(10 * time.Millisecond)
		}
		for page := 100 * time.Millisecond; page < 2*time.Second; page += 100 * time.Millisecond {
			_, body := visit(t, &slow{m, page}, console.Options{}).answer("lifecycle?topic=orders")
			require.NotContains(t, body, "There are no records", "%v for a page", page)
		}
	})
}

// A call that hangs counts as a broker that is away: the change goes on when calls return again, and
// stores no event twice.
func TestJobThroughACallThatHangs(t *testing.T) {
	for verb, calls := range map[string][]string{"redrive": {"read", "groups", "publish", "remove"}, "discard": {"read", "remove"}} {
		for _, call := range calls {
			for _, ends := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, ends %v", verb, call, ends), func(t *testing.T) {
					inBubble(t, func(t *testing.T, m *meter) { throughAHang(t, m, verb, call, ends) })
				})
			}
		}
	}
}

func throughAHang(t *testing.T, m *meter, verb, call string, ends bool) {
	attach(t, m, "orders", "billing")
	letters(t, m, 300)
	b := &hanging{meter: m}
	h := change(t, b, console.Options{})
	ask := h.submit(h.open("letters?topic=orders.dlq"), verb)
	b.call.Store(&call)
	h.submit(ask, "confirm")
	if ends {
		time.Sleep(15 * time.Second)
		b.call.Store(nil)
	}
	time.Sleep(3 * time.Minute)
	b.call.Store(nil)
	row := h.open("jobs").cells("Changes")[0]
	if !ends {
		require.Equal(t, "failed", row["State"], "a job does not keep its place for hours")
		return
	}
	require.Equal(t, "done", row["State"])
	require.Empty(t, ids(t, m, "orders.dlq"))
	if verb == "redrive" {
		ms, err := backend.Read(t.Context(), m, "orders", backend.StartEarliest, 1000)
		require.NoError(t, err)
		got := map[string]int{}
		for i := range ms {
			letter.Restore(&ms[i])
			got[ms[i].ID]++
		}
		require.Len(t, ms, 300)
		require.Len(t, got, 300, "no event is stored twice")
	}
}
