// Command failing measures how failing events slow down other events, on one broker:
//
//	go run ./failing -url redis://127.0.0.1:6379
//
// It prints a line for each scenario. Each run uses new topics.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

func main() {
	broker := flag.String("url", "mem:", "the `URL` of a broker")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelError)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := run(ctx, *broker); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, broker string) error {
	b, err := open(ctx, broker)
	if err != nil {
		return err
	}
	refunds := backend.LimitsOf(b).Refund
	bus, err := eventbus.New(b, eventbus.Options{})
	if err != nil {
		return err
	}
	defer bus.Shutdown(ctx) //nolint:errcheck // the figures are printed
	stories := []func(context.Context, *eventbus.Bus) error{twoMembers}
	if refunds { // without Limits.Refund, events that wait behind a retry stay in flight, so these scenarios cannot run
		stories = append(stories, hotKey, manyKeys)
	}
	for _, story := range stories {
		if err := story(ctx, bus); err != nil {
			return err
		}
	}
	return nil
}

func open(ctx context.Context, broker string) (backend.Backend, error) {
	u, err := url.Parse(broker)
	if err != nil {
		return nil, err
	}
	for _, d := range []backend.Driver{inmemory.Driver{}, redisstream.Driver{}, nats.Driver{}} {
		if slices.Contains(d.Schemes(), u.Scheme) {
			return d.Open(ctx, u)
		}
	}
	return nil, fmt.Errorf("no driver for %s", u.Scheme)
}

var errBroken = errors.New("broken")

// A ledger records for each event the time from its publishing to its first run.
type ledger struct {
	mu   sync.Mutex
	took map[string]time.Duration
}

func newLedger() *ledger { return &ledger{took: map[string]time.Duration{}} }

// runs records a run, and reports whether the run is the first one of its event.
func (l *ledger) runs(d *eventbus.Delivery) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, seen := l.took[d.ID]; seen {
		return false
	}
	l.took[d.ID] = time.Since(d.Time)
	return true
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.took)
}

// quantile returns the longest time from publishing to first run among the fastest share q
// of the events.
func (l *ledger) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]time.Duration, 0, len(l.took))
	for _, d := range l.took {
		all = append(all, d)
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)].Round(100 * time.Microsecond)
}

// await waits until the ledger has the first runs of n events.
func (l *ledger) await(ctx context.Context, n int) error {
	for l.count() < n {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d events were handled: %w", l.count(), n, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func name(story string) string { return story + strconv.FormatInt(time.Now().UnixNano(), 36) }

// twoMembers publishes 450 events a second, with 40 keys, for ten seconds. The first run of
// every 50th event fails, and the event is retried after 100 ms.
func twoMembers(ctx context.Context, bus *eventbus.Bus) error {
	topic, l := name("two"), newLedger()
	handle := func(_ context.Context, d *eventbus.Delivery) error {
		n, _ := strconv.Atoi(d.ID)
		if l.runs(d) && n%50 == 0 {
			return eventbus.RetryAfter(errBroken, 100*time.Millisecond)
		}
		return nil
	}
	for range 2 {
		if _, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{Group: "g", Concurrency: 8}, handle); err != nil {
			return err
		}
	}
	const n = 4500
	tick := time.NewTicker(time.Second / 450)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		if err := bus.Publish(ctx, topic, &eventbus.Event{ID: strconv.Itoa(i), Key: strconv.Itoa(i * 7 % 40)}); err != nil {
			return err
		}
	}
	if err := l.await(ctx, n); err != nil {
		return err
	}
	fmt.Printf("two members, 2 %% fail once: first run p50 %v, p99 %v, p99.9 %v, max %v\n",
		l.quantile(0.5), l.quantile(0.99), l.quantile(0.999), l.quantile(1))
	return nil
}

// hotKey publishes 50,000 events of one key. Every run of the first event fails, with a
// retry after a second. Meanwhile hotKey publishes events of other keys for ten seconds.
// Then the first event succeeds, and hotKey measures how soon the other 49,999 are handled.
func hotKey(ctx context.Context, bus *eventbus.Bus) error {
	const hot, others = 50_000, 1000
	topic, hots, l := name("hot"), newLedger(), newLedger()
	var mu sync.Mutex
	well := false
	handle := func(_ context.Context, d *eventbus.Delivery) error {
		if d.Key != "hot" {
			l.runs(d)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if !well {
			return eventbus.RetryAfter(errBroken, time.Second)
		}
		hots.runs(d)
		return nil
	}
	o := eventbus.SubscribeOptions{Group: "g", Concurrency: 8, Retry: eventbus.Retry{MaxAttempts: -1}}
	if _, err := bus.Subscribe(ctx, topic, o, handle); err != nil {
		return err
	}
	for i := range hot / 500 {
		batch := make([]*eventbus.Event, 500)
		for j := range batch {
			batch[j] = &eventbus.Event{ID: fmt.Sprintf("h%d", 500*i+j), Key: "hot"}
		}
		if err := bus.Publish(ctx, topic, batch...); err != nil {
			return err
		}
	}
	for i := range others {
		if err := bus.Publish(ctx, topic, &eventbus.Event{ID: strconv.Itoa(i), Key: strconv.Itoa(i)}); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := l.await(ctx, others); err != nil {
		return err
	}
	fmt.Printf("50,000 behind a failing head: others p50 %v, p99 %v, max %v\n", l.quantile(0.5), l.quantile(0.99), l.quantile(1))
	mu.Lock()
	well = true
	mu.Unlock()
	begun := time.Now()
	if err := hots.await(ctx, hot); err != nil {
		return err
	}
	fmt.Printf("then the 50,000 are handled in %v, %.0f a second\n", time.Since(begun).Round(time.Millisecond), hot/time.Since(begun).Seconds())
	return nil
}

// manyKeys publishes one event for each of 10,000 keys. The events of even keys always fail
// and are retried after a second. Then manyKeys publishes three more events for each odd
// key.
func manyKeys(ctx context.Context, bus *eventbus.Bus) error {
	const keys, rounds = 10_000, 4
	topic, l := name("many"), newLedger()
	handle := func(_ context.Context, d *eventbus.Delivery) error {
		if n, _ := strconv.Atoi(d.Key); n%2 == 0 {
			return eventbus.RetryAfter(errBroken, time.Second)
		}
		l.runs(d)
		return nil
	}
	o := eventbus.SubscribeOptions{Group: "g", Concurrency: 8, Retry: eventbus.Retry{MaxAttempts: -1}}
	if _, err := bus.Subscribe(ctx, topic, o, handle); err != nil {
		return err
	}
	for round := range rounds {
		for i := range keys / 50 {
			var batch []*eventbus.Event
			for key := 50 * i; key < 50*(i+1); key++ {
				if round == 0 || key%2 == 1 {
					batch = append(batch, &eventbus.Event{ID: fmt.Sprintf("%d/%d", key, round), Key: strconv.Itoa(key)})
				}
			}
			if err := bus.Publish(ctx, topic, batch...); err != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond) // limits the rate to 5,000 events a second
		}
	}
	if err := l.await(ctx, rounds*keys/2); err != nil {
		return err
	}
	fmt.Printf("5,000 of 10,000 keys fail: others p50 %v, p99 %v, max %v\n", l.quantile(0.5), l.quantile(0.99), l.quantile(1))
	return nil
}
