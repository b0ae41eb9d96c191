package ndjson

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":"e-%d","key":"k-%d","data":%d}`+"\n", i, i%7, i)
	}
	return b.String()
}

// stored are the IDs in topic t, in order.
func stored(t *testing.T, b backend.Reader) (ids []string) {
	ms, err := b.Read(t.Context(), "t", "", 1_000_000)
	if !errors.Is(err, backend.ErrGone) {
		require.NoError(t, err)
	}
	for _, m := range ms {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestPublisherKeepsTheOrder(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	bus := eventbustest.On(t, b, eventbus.Options{})
	calls := 0
	counted := eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		calls++
		time.Sleep(time.Millisecond) // as slow as a broker
		return bus.Publish(ctx, topic, events...)
	})
	const n = 50_000
	f := &Publisher{Bus: counted, Topic: "t", Input: NewReader("in", strings.NewReader(numbered(n)))}
	got, err := f.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, n, got)
	ids := stored(t, b)
	require.Len(t, ids, n)
	for i, id := range ids {
		require.Equal(t, fmt.Sprintf("e-%d", i), id)
	}
	require.Less(t, calls, n/10, "in batches")
}

// The error names the line of a bad event. All events before it are stored.
func TestPublisherEndsWhereTheInputIsWrong(t *testing.T) {
	for _, row := range []struct{ name, line, want string }{
		{"not JSON", "what", "in:101: not an event as JSON"},
		{"refused by the bus", `{"key":"a\u0000"}`, "in:101: Key has a control character"},
		{"refused before", `{"type":"no"}`, "in:101: no good"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := inmemory.New(inmemory.Options{})
			f := &Publisher{
				Bus: eventbustest.On(t, b, eventbus.Options{}), Topic: "t",
				Input: NewReader("in", strings.NewReader(numbered(100)+row.line+"\n"+numbered(100))),
				Prepare: func(e *eventbus.Event) error {
					if e.Type == "no" {
						return errors.New("no good")
					}
					return nil
				},
			}
			n, err := f.Run(t.Context())
			require.ErrorContains(t, err, row.want)
			require.ErrorContains(t, err, "; published: 100 events")
			require.Equal(t, 100, n)
			require.Len(t, stored(t, b), 100)
		})
	}
}

func TestPublisherSaysWhatTheBackendRefuses(t *testing.T) {
	b := inmemory.New(inmemory.Options{MaxMessages: 150})
	f := &Publisher{Bus: eventbustest.On(t, b, eventbus.Options{}), Topic: "t", Input: NewReader("in", strings.NewReader(numbered(300)))}
	n, err := f.Run(t.Context())
	require.ErrorIs(t, err, eventbus.ErrFull)
	require.ErrorContains(t, err, "in:151: ")
	require.Equal(t, 150, n)

	_, err = (&Publisher{Bus: eventbustest.On(t, b, eventbus.Options{}), Topic: "a b", Input: NewReader("in", strings.NewReader("{}"))}).Run(t.Context())
	require.ErrorContains(t, err, `topic "a b" contains ' '`)
}

// A broker may refuse an event that the bus allows, and store later events of its batch.
func TestPublisherTellsThatLaterEventsAreStored(t *testing.T) {
	b := inmemory.New(inmemory.Options{MaxBytes: 1000})
	f := &Publisher{Bus: eventbustest.On(t, b, eventbus.Options{}), Topic: "t", Input: NewReader("in", nil)}
	var items []item
	for i, size := range []int{10, 2000, 10, 10} {
		items = append(items, item{&eventbus.Event{Payload: make([]byte, size)}, i + 1})
	}
	n, err := f.publish(t.Context(), items)
	require.ErrorIs(t, err, eventbus.ErrTooLarge)
	require.ErrorContains(t, err, "in:2: ")
	require.ErrorContains(t, err, "; published after this line: 2 events")
	require.Equal(t, 3, n)
	require.Len(t, stored(t, b), 3)
}

// A connection that ends while a batch is published is an error, and not the end of the input.
func TestPublisherTellsALostConnection(t *testing.T) {
	lost := eventbus.PublisherFunc(func(context.Context, string, ...*eventbus.Event) error {
		return fmt.Errorf("%w: %w", eventbus.ErrUnknownOutcome, io.EOF)
	})
	_, err := (&Publisher{Bus: lost, Topic: "t", Input: NewReader("in", strings.NewReader(numbered(3)))}).Run(t.Context())
	failure, ok := errors.AsType[*PublisherError](err)
	require.True(t, ok)
	require.True(t, failure.Perhaps)
}

// A typed event is published without waiting for a full batch.
func TestPublisherDoesNotWaitForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		from, to := io.Pipe()
		ended := make(chan error)
		bus := eventbustest.On(t, b, eventbus.Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			f := &Publisher{Bus: bus, Topic: "t", Input: NewReader("in", from)}
			_, err := f.Run(ctx)
			ended <- err
		}()
		for i := range 3 {
			fmt.Fprintln(to, "{}")
			synctest.Wait()
			require.Len(t, stored(t, b), i+1)
		}
		cancel(errors.New("enough"))
		require.EqualError(t, <-ended, "enough; published: 3 events")
		to.Close()
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}
