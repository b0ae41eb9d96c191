// Package eventbustest provides a bus for testing applications. It is in memory, is shut down when its
// test ends, remembers published events, and can wait until all events are settled. It works inside
// testing/synctest, where retries that take minutes finish instantly.
package eventbustest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A Bus is an in-memory eventbus.Bus that belongs to a test.
type Bus struct {
	*eventbus.Bus
	record *record
}

// drainTimeout is how long the shutdown at the end of a test waits for handlers.
const drainTimeout = 5 * time.Second

// New returns a bus with default options.
func New(t testing.TB) *Bus {
	t.Helper()
	return NewWith(t, eventbus.Options{})
}

// NewWith returns a bus with the given options. If o.Observer is zero, the bus logs failures with
// t.Log until the test ends.
//
// When the test ends, the bus is shut down within Options.DrainTimeout, by default 5 s. The test
// fails if handlers are then still running, or if events are neither settled nor given back. It
// does not fail because of events that wait for a retry; use [Bus.WaitIdle] to check for those. If
// your test calls Shutdown itself, check its error, because the end of the test then doesn't.
func NewWith(t testing.TB, o eventbus.Options) *Bus {
	t.Helper()
	if o.DrainTimeout == 0 {
		o.DrainTimeout = drainTimeout
	}
	log := &testLog{tb: t}
	if o.Observer.IsZero() {
		o.Observer = observer.Slog(slog.New(log.handler()))
	}
	b := &Bus{record: newRecord(inmemory.New(inmemory.Options{}))}
	b.Bus = On(t, b.record, o)
	t.Cleanup(func() {
		defer log.close()
		b.end(t, o.DrainTimeout)
	})
	return b
}

// On returns a bus on the backend b. If [eventbus.New] refuses b or o, the test ends with t.Fatal.
// You must shut the bus down yourself.
func On(t testing.TB, b backend.Backend, o eventbus.Options) *eventbus.Bus {
	t.Helper()
	bus, err := eventbus.New(b, o)
	if err != nil {
		t.Fatalf("eventbustest: %v", err)
	}
	return bus
}

func (b *Bus) end(t testing.TB, timeout time.Duration) {
	t.Helper()
	ctx, cancel := context.WithoutCancel(t.Context()), context.CancelFunc(func() {})
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	ended := errors.Is(b.Ready(ctx), eventbus.ErrClosed)
	if err := b.Shutdown(ctx); err != nil && !ended {
		t.Errorf("eventbustest: at the end of the test: %v", err)
	}
}

// Published returns the events stored in topic, which may be a dead-letter topic, in order. You may
// modify them. All events are kept until the test ends.
func (b *Bus) Published(topic string) []eventbus.Event { return b.record.published(topic) }

// WaitIdle waits until every group has settled every event: each one is acknowledged, discarded or
// dead-lettered, and none waits for a retry. If ctx ends first, the error names the groups with
// unsettled events.
//
// With AckOnReceive an event is settled before its handler runs, so WaitIdle may return while the
// handler is still running. In a synctest bubble, call synctest.Wait afterwards to wait for these
// handlers.
func (b *Bus) WaitIdle(ctx context.Context) error { return b.record.waitIdle(ctx) }
