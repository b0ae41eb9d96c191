package redisstream_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// The bounds on commands of the bus, with default options. All commands after the start of the
// first handler count, including those for sweeps and upkeep. Commands for connecting and
// subscribing do not count.
const (
	mostConsuming  = 12 // commands for 1,000 events, with handlers that take no time
	mostWorking    = 40 // with handlers that take 50 µs
	mostPublishing = 10 // round trips for 1,000 events, published by 100
	mostIdle       = 5  // commands in a second, exclusive
)

const manyEvents = 100_000

// A talk is a consumer of events that were published before, with a bound on its commands.
type talk struct {
	work        time.Duration // of a handler
	concurrency int
	most        float64 // commands for 1,000 events
}

var talks = []talk{
	{0, 1, mostConsuming},
	{0, 16, mostConsuming},
	{50 * time.Microsecond, 1, mostWorking},
	{50 * time.Microsecond, 16, mostWorking},
}

func (w talk) String() string { return fmt.Sprintf("%dus-%d", w.work.Microseconds(), w.concurrency) }

func groupsOf(talks []talk) (groups []string) {
	for _, w := range talks {
		groups = append(groups, w.String())
	}
	return groups
}

// The bus sends no more commands than the bounds of talks. The test's clock moves only while
// every handler works and no command is under way, so neither the machine's speed nor other
// programs change the counts.
func TestWireConsume(t *testing.T) {
	t.Parallel()
	events := manyEvents
	if os.Getenv("EVENTBUS_WIRE") == "" || raceEnabled {
		events /= 10
	}
	s := newSpeech(t, events, groupsOf(talks)...)
	for _, w := range talks {
		t.Run(w.String(), func(t *testing.T) {
			p := s.proxy(t)
			synctest.Test(t, func(t *testing.T) {
				s.require(t, w, s.consume(t, w.String(), w, p, time.Sleep, direct))
			})
		})
	}
}

// By the machine's clock the number of commands is lower than in TestWireConsume. Events that
// end while a command is under way share the next one.
func TestWireConsumeSpinning(t *testing.T) {
	if os.Getenv("EVENTBUS_WIRE") == "" {
		t.Skip("set EVENTBUS_WIRE=1, without the race detector")
	}
	s := newSpeech(t, manyEvents, groupsOf(talks)...)
	spin := func(d time.Duration) {
		for start := time.Now(); time.Since(start) < d; {
		}
	}
	for _, w := range talks {
		t.Run(w.String(), func(t *testing.T) {
			s.require(t, w, s.consume(t, w.String(), w, s.proxy(t), spin, direct))
		})
	}
}

// TestWireConsume fails for a bus that sends too many commands.
func TestWireConsumeNotices(t *testing.T) {
	t.Parallel()
	rows := []struct {
		group string
		spoil talkative
	}{
		{"an-xack-for-each", talkative{acks: 1}},
		{"an-xack-for-20", talkative{acks: 20}},
		{"reads-of-50", talkative{reads: 50}},
	}
	var groups []string
	for _, row := range rows {
		groups = append(groups, row.group)
	}
	s := newSpeech(t, 3000, groups...)
	for _, row := range rows {
		t.Run(row.group, func(t *testing.T) {
			w := talk{0, 1, mostConsuming}
			p := s.proxy(t)
			synctest.Test(t, func(t *testing.T) {
				said := s.consume(t, row.group, w, p, time.Sleep, row.spoil.wrap)
				require.Greater(t, said.per1000(), w.most, said)
			})
		})
	}
}

// A batch of 100 is one round trip.
func TestWirePublish(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, redistest.Shared(t).Addr(), faultproxy.RESP)
	bus, _ := wireBus(t, p.Addr(), direct)
	publishWarm(t, bus, t.Name(), 100) // connects
	const events = 20_000
	before := p.RoundTrips()
	publishWarm(t, bus, t.Name(), events)
	per := float64(p.RoundTrips()-before) * 1000 / events
	t.Logf("%.2f round trips for 1,000 events", per)
	require.LessOrEqual(t, per, float64(mostPublishing), "round trips for 1,000 events, published by 100: %v", p.Commands())
}

// A subscription without events asks for new ones twice a second, and as often for
// redelivered ones.
func TestWireIdle(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, redistest.Shared(t).Addr(), faultproxy.RESP)
	bus, _ := wireBus(t, p.Addr(), direct)
	handler := func(context.Context, *eventbus.Delivery) error { return nil }
	_, err := bus.Subscribe(t.Context(), t.Name(), eventbus.SubscribeOptions{Group: "g"}, handler)
	require.NoError(t, err)
	time.Sleep(time.Second) // connects, and teaches the server its scripts
	start, before := time.Now(), p.Commands()
	time.Sleep(6 * time.Second)
	said := saidSince(p, before, 0)
	per := float64(said.total) / time.Since(start).Seconds()
	t.Logf("%.2f commands in a second: %v", per, said)
	require.Less(t, per, float64(mostIdle), "commands in a second: %v", said)
}

// A speech is a topic with events, and a group for each talk.
type speech struct {
	server *redistest.Server
	topic  string
	events int
}

func newSpeech(t *testing.T, events int, groups ...string) *speech {
	s := &speech{server: redistest.Shared(t), topic: t.Name(), events: events}
	bus, _ := wireBus(t, s.server.Addr(), direct)
	client := s.server.Client(t)
	t.Cleanup(func() { client.Unlink(context.WithoutCancel(t.Context()), s.key()) })
	// There are always more events, because the commands at the end are not tested here.
	publishWarm(t, bus, s.topic, s.events+4000)
	// All groups exist from the beginning. Otherwise settled messages would be trimmed
	// before the last group attaches.
	for _, g := range groups {
		require.NoError(t, client.XGroupCreate(t.Context(), s.key(), g, "0").Err())
	}
	return s
}

func (s *speech) key() string { return "bus:{" + s.topic + "}" }

func (s *speech) proxy(t *testing.T) *faultproxy.Proxy {
	return faultproxy.New(t, s.server.Addr(), faultproxy.RESP)
}

// consume returns the commands from the start of the first handler to the end of the last.
func (s *speech) consume(t *testing.T, group string, w talk, p *faultproxy.Proxy, spend func(time.Duration), spoil func(backend.Backend) backend.Backend) (all said) {
	bus, end := wireBus(t, p.Addr(), spoil)
	var begun, ended atomic.Int64
	var before map[string]int64
	done := make(chan struct{})
	o := eventbus.SubscribeOptions{Group: group, Concurrency: w.concurrency}
	_, err := bus.Subscribe(t.Context(), s.topic, o, func(context.Context, *eventbus.Delivery) error {
		if begun.Add(1) == 1 {
			before = p.Commands()
		}
		spend(w.work)
		if ended.Add(1) == int64(s.events) {
			all = saidSince(p, before, s.events)
			close(done)
		}
		return nil
	})
	require.NoError(t, err)
	<-done
	end()
	return all
}

func (s *speech) require(t *testing.T, w talk, all said) {
	t.Logf("%.2f commands for 1,000 events: %v", all.per1000(), all)
	require.GreaterOrEqual(t, all.commands["XREADGROUP"], int64(s.events/1024), "nothing was counted: %v", all)
	require.LessOrEqual(t, all.per1000(), w.most, "commands for 1,000 events, handlers of %v, %d at once: %v", w.work, w.concurrency, all)
}

// said counts the commands that a consumer sent.
type said struct {
	commands map[string]int64
	total    int64
	events   int
}

func saidSince(p *faultproxy.Proxy, before map[string]int64, events int) said {
	s := said{p.Commands(), 0, events}
	for name := range s.commands {
		s.commands[name] -= before[name]
		s.total += s.commands[name]
	}
	return s
}

func (s said) per1000() float64 { return float64(s.total) * 1000 / float64(s.events) }

func (s said) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.commands)) {
		if n := s.commands[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, name))
		}
	}
	return strings.Join(parts, ", ")
}

func direct(b backend.Backend) backend.Backend { return b }

// wireBus returns a bus with default options on the server at addr. It ends with the test,
// or by end.
func wireBus(t *testing.T, addr string, spoil func(backend.Backend) backend.Backend) (bus *eventbus.Bus, end func()) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	bus = eventbustest.On(t, spoil(b), eventbus.Options{})
	end = func() {
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
		_ = client.Close() // a second time returns ErrClosed
	}
	t.Cleanup(end)
	return bus, end
}

// publishWarm publishes events of 256 bytes, 100 in a call.
func publishWarm(t *testing.T, bus *eventbus.Bus, topic string, events int) {
	payload := make([]byte, 256)
	batch := make([]*eventbus.Event, 100)
	for range events / len(batch) {
		for i := range batch {
			batch[i] = &eventbus.Event{Payload: payload}
		}
		require.NoError(t, bus.Publish(t.Context(), topic, batch...))
	}
}

// A talkative backend reads and acknowledges in small portions, or in any if they are zero.
type talkative struct {
	backend.Backend
	acks, reads int
}

func (b talkative) wrap(of backend.Backend) backend.Backend {
	b.Backend = of
	return b
}

// Unwrap returns the wrapped value.
func (b talkative) Unwrap() backend.Backend { return b.Backend }

// Attach implements [backend.Backend].
func (b talkative) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return talkativeSource{s, b}, err
}

type talkativeSource struct {
	backend.Source
	of talkative
}

// Unwrap returns the wrapped value.
func (s talkativeSource) Unwrap() backend.Source { return s.Source }

// Receive implements [backend.Source].
func (s talkativeSource) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	if s.of.reads > 0 {
		limit = min(limit, s.of.reads)
	}
	return s.Source.Receive(ctx, limit, maxBytes)
}

// Ack implements [backend.Source].
func (s talkativeSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if s.of.acks == 0 {
		return s.Source.Ack(ctx, ds)
	}
	for part := range slices.Chunk(ds, s.of.acks) {
		if err := s.Source.Ack(ctx, part); err != nil {
			return err
		}
	}
	return nil
}
