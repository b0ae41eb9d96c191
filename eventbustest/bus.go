// Package eventbustest has a bus for the tests of applications. The bus is in memory, and
// is shut down when its test ends. It remembers published events, and can wait until all
// events are settled. It works inside testing/synctest, where retries of minutes take no
// time.
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

// A Bus is an eventbus.Bus in memory that belongs to a test.
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

// NewWith returns a bus with the given options. If o.Observer is zero, the bus logs
// failures with t.Log until the test ends.
//
// When the test ends the bus is shut down, within Options.DrainTimeout, 5 s by default. If
// handlers still run then, or events are neither settled nor given back, the test fails. It
// does not fail for events that wait for a retry: [Bus.WaitIdle] does. A test that calls
// Shutdown itself must check the error, because the end of the test then does not.
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

// On returns a bus on the backend b. If [eventbus.New] refuses b or o, On ends the test
// with t.Fatal. The caller must shut the bus down.
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

// Published returns the events stored in topic, in order. topic may be a dead-letter topic.
// The caller may change the events. All events are kept until the test ends.
func (b *Bus) Published(topic string) []eventbus.Event { return b.record.published(topic) }

// WaitIdle waits for a moment at which every group has settled every event: each is
// acknowledged, discarded or dead-lettered, and none waits for a retry. If ctx ends first,
// the error names the groups with unsettled events.
//
// With AckOnReceive an event is settled before its handler runs, so WaitIdle may return
// before the handler does. In a synctest bubble, a call of synctest.Wait after WaitIdle
// waits for these handlers.
func (b *Bus) WaitIdle(ctx context.Context) error { return b.record.waitIdle(ctx) }
