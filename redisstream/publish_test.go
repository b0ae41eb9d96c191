package redisstream_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// An event is stored at the position that its publisher gives, if it is greater than those before,
// and otherwise refused alone.
func TestAtPosition(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, dedup := range []bool{false, true} { // an XADD, and publish.lua
		bus, err := eventbus.Open(t.Context(), server.URL(), eventbus.Options{Dedup: dedup}, redisstream.Driver{})
		require.NoError(t, err)
		topic := fmt.Sprint("positions.", dedup)
		events := []*eventbus.Event{
			{AtPosition: "1700000000000-7"},
			{AtPosition: "1700000000000-7"},
			{AtPosition: "01700000000001-00000000000000000000"},
			{AtPosition: "1600000000000-0"},
			{AtPosition: "yesterday"},
			{},
		}
		receipts, err := bus.PublishReceipts(t.Context(), topic, events...)
		require.Len(t, receipts, len(events))
		var failed *eventbus.PublishError
		require.ErrorAs(t, err, &failed)
		for i, refused := range []bool{false, true, false, true, true, false} {
			if refused {
				require.ErrorIs(t, failed.Errors[i], backend.ErrRefused, i)
			} else {
				require.NoError(t, failed.Errors[i], i)
			}
		}
		require.Equal(t, "01700000000000-00000000000000000007", receipts[0].Position)
		require.Equal(t, "01700000000001-00000000000000000000", receipts[2].Position)
		require.Greater(t, receipts[5].Position, receipts[2].Position)
		var field *eventbus.FieldError
		_, err = eventbus.MessageOf(topic, events[0])
		require.ErrorAs(t, err, &field)
		require.ErrorAs(t, bus.PublishIn(t.Context(), topic, time.Hour, events[0]), &field)
		require.Equal(t, "events[0].AtPosition", field.Field)
		require.NoError(t, bus.Shutdown(t.Context()))
	}
}

// A history holds the results that publishers got, by ID.
type history struct {
	mu                   sync.Mutex
	stored, not, unknown map[string]bool
	positions            map[string]string
}

func newHistory() *history {
	return &history{stored: map[string]bool{}, not: map[string]bool{}, unknown: map[string]bool{}, positions: map[string]string{}}
}

func (h *history) tell(ms []*backend.Message, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, m := range ms {
		switch err := backend.ErrorAt(err, i); {
		case err == nil:
			h.stored[m.ID], h.positions[m.ID] = true, m.Position
		case backend.NotStored(err):
			h.not[m.ID] = true
		default:
			h.unknown[m.ID] = true
		}
	}
}

// require compares the history with the topic. A message reported as stored is there once,
// at its position. A message reported as not stored is not there. All others are there at
// most once.
func (h *history) require(t *testing.T, all []backend.Message) {
	t.Helper()
	copies := map[string]int{}
	for _, m := range all {
		copies[m.ID]++
		if h.stored[m.ID] {
			require.Equal(t, h.positions[m.ID], m.Position, m.ID)
		}
	}
	for id := range h.stored {
		require.Equal(t, 1, copies[id], "%s was said to be stored", id)
	}
	for id := range h.not {
		require.Zero(t, copies[id], "%s was said not to be stored", id)
	}
	for id := range h.unknown {
		require.LessOrEqual(t, copies[id], 1, "%s", id)
	}
}

// Every result that a publisher gets while the server is killed is true.
func TestPublishersAreToldTheTruthOverKills(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	h := newHistory()
	end := make(chan struct{})
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				ms := batch(fmt.Sprintf("%d-%d", p, n), 50)
				if n%2 == 0 {
					ms = append(ms[:25], once(ms[25:])...)
				}
				if n%4 == 3 {
					ms = ms[:1]
				}
				err := b.Publish(within(t, 5*time.Second), ms)
				h.tell(ms, err)
				if err != nil {
					pause(5 * time.Millisecond)
				}
			}
		})
	}
	for range 3 {
		pause(250 * time.Millisecond)
		server.Kill()
		pause(100 * time.Millisecond)
		server.Run()
	}
	pause(250 * time.Millisecond)
	close(end)
	publishers.Wait()
	// After a refusal the client tries the server again only a second later.
	require.Eventually(t, func() bool {
		_, err := b.Read(within(t, 5*time.Second), topic, "", 1)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	h.require(t, stored(t, b))
	t.Logf("stored %d, certainly not %d, unknown %d", len(h.stored), len(h.not), len(h.unknown))
	require.NotEmpty(t, h.stored)
	require.NotEmpty(t, h.not)
}

// An id whose first number has more than 14 digits is a position like any other: of a read,
// a start, a removal, an acknowledgement and a delay.
func TestLongIDsArePositions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	b.SetYouth(0)
	s := attach(t, b, config())
	publish(t, b, batch("short", 2))
	ids := []string{"99999999999999-7", "100000000000000-1", "1795243593723000-2", "1795243593723000-11", "18446744073709551614-0"}
	for _, id := range ids {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: id, Values: []any{"event", ":id: " + id + "\n\n"}}).Err())
	}
	publish(t, b, once(batch("long", 1)))
	want := append(append([]string{"short-0", "short-1"}, ids...), "long-0")
	ids = nil
	var positions []string
	for _, m := range stored(t, b) {
		ids, positions = append(ids, m.ID), append(positions, m.Position)
	}
	require.Equal(t, want, ids)
	require.True(t, slices.IsSorted(positions), positions)
	for i, position := range positions {
		ms, err := b.Read(t.Context(), topic, backend.StartAfter(position), 1)
		require.NoError(t, err)
		require.Len(t, ms, min(1, len(want)-1-i))
		require.NoError(t, b.ResetGroup(t.Context(), topic, workers, backend.StartAfter(position)))
		if i+1 < len(want) {
			require.Equal(t, want[i+1], receive(t, s, 1)[0].ID)
		}
	}
	require.NoError(t, b.ResetGroup(t.Context(), topic, workers, backend.StartEarliest))

	// Delayed messages are due in the order of their positions, whatever the length of their ids.
	ds := receive(t, s, len(want))
	var delays []backend.Delayed
	for _, i := range []int{7, 5, 3, 1, 6, 4, 2, 0} {
		delays = append(delays, backend.Delayed{Delivery: ds[i], For: 10 * time.Millisecond})
	}
	require.NoError(t, s.Delay(t.Context(), delays))
	ds = receive(t, s, len(want))
	ids = nil
	for i := range ds {
		ids = append(ids, ds[i].ID)
		require.Equal(t, positions[i], ds[i].Position)
		require.Equal(t, 2, ds[i].Attempt)
	}
	require.Equal(t, want, ids)
	require.NoError(t, s.Extend(t.Context(), backend.Lend(ds)))
	stats, err := b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, int64(len(want)), stats.InFlight)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds[:3])))
	confirming := config()
	confirming.ConfirmAcks, confirming.Group, confirming.Start = true, "confirming", backend.StartAfter(positions[4])
	s = attach(t, b, confirming)
	ds = receive(t, s, 3)
	require.Equal(t, want[5], ds[0].ID)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	stats, err = b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, int64(5), stats.InFlight)
	_, err = b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	require.NoError(t, b.Remove(t.Context(), topic, positions[5:7]))
	require.Len(t, stored(t, b), 3, "without three that are settled, and two that were removed")
}

// A message is reported as certainly not stored only if it is not stored, even if the script
// fails at the message after it.
func TestScriptThatFailsHalfwaySaysWhatIsStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "unmarked", "secret", "~*", "+@all")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "unmarked", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := open(t, client, redisstream.Options{})
	publish(t, b, batch("first", 1)) // asks for the settings of the topic
	server.User(t, "unmarked", "secret", "~*", "+@all", "-get")
	ms := batch("a", 3)
	once(ms[1:2])
	err := b.Publish(t.Context(), ms)
	require.NoError(t, backend.ErrorAt(err, 0))
	require.ErrorIs(t, backend.ErrorAt(err, 1), backend.ErrDenied)
	require.ErrorIs(t, backend.ErrorAt(err, 2), backend.ErrDenied)
	require.Len(t, stored(t, b), 2)
}

// Close cuts off a Publish whose message is stored already. ErrClosed then does not mean
// that the message was not stored.
func TestCloseDuringPublishIsNoAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	publish(t, b, batch("a", 1))
	proxy.Swallow(true)
	outcome := make(chan error, 1)
	go func() { outcome <- b.Publish(t.Context(), batch("b", 1)) }()
	require.Eventually(t, func() bool {
		return server.Client(t).XLen(t.Context(), stream).Val() == 2
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, b.Close())
	err := <-outcome
	require.ErrorIs(t, err, backend.ErrClosed)
	require.ErrorIs(t, err, backend.ErrUnknownOutcome)
	require.False(t, backend.NotStored(err))
}
