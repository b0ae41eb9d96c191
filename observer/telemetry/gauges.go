package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/each"
	"github.com/seed41896749/eventbus/observer"
)

// gauges are the metrics whose values are computed when metrics are collected.
type gauges struct {
	held, bytes, running            metric.Int64ObservableGauge
	degraded, limited, partitions   metric.Int64ObservableGauge
	lag, inFlight, delayed, members metric.Int64ObservableGauge
	depth                           metric.Int64ObservableGauge
	age                             metric.Float64ObservableGauge
}

func newGauges(meter metric.Meter) (g gauges, all []metric.Observable, err error) {
	var errs []error
	add := func(to *metric.Int64ObservableGauge, name, unit, description string) {
		i, err := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		*to, all, errs = i, append(all, i), append(errs, err)
	}
	add(&g.held, "eventbus.held.messages", "{message}", "Events that this program holds.")
	add(&g.bytes, "eventbus.held.size", "By", "Size of the events that this program holds.")
	add(&g.running, "eventbus.handlers.running", "{handler}", "Handlers currently running.")
	add(&g.degraded, "eventbus.subscription.degraded", "{subscription}", "Subscriptions that cannot reach their backend.")
	add(&g.limited, "eventbus.subscription.limited", "{subscription}", "Subscriptions whose limiter, for example an open breaker, lets them read nothing.")
	add(&g.partitions, "eventbus.subscription.partitions", "{partition}", "Partitions that subscriptions of this program own.")
	add(&g.lag, "eventbus.group.lag", "{message}", "Events that were never delivered to the group.")
	add(&g.inFlight, "eventbus.group.in_flight", "{message}", "Events held by a member of the group.")
	add(&g.delayed, "eventbus.group.delayed", "{message}", "Events of the group that are waiting for a retry.")
	add(&g.members, "eventbus.group.members", "{member}", "Members of the group.")
	add(&g.depth, "eventbus.topic.depth", "{message}", "Events stored in the topic.")
	g.age, err = meter.Float64ObservableGauge("eventbus.group.oldest.age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest event that the group has not settled; 0 if there is none."))
	return g, append(all, g.age), errors.Join(append(errs, err)...)
}

// Watch adds the gauges of bus: the load and the state of its subscriptions, and the backend.Stats
// of their groups. If the backend is a [backend.Identified], spans and metrics also name its broker
// from then on, so call Watch before Publish and Subscribe.
//
// The backend is asked at most once per Options.SampleEvery. A collection of metrics waits at most
// a quarter of a second for the answers; if they come later, it uses the previous ones. stop
// removes the gauges, and returns once the last call to the backend has ended.
func (t *Telemetry) Watch(bus *eventbus.Bus) (stop func(), err error) {
	g, all, err := newGauges(t.meter)
	if err != nil {
		return nil, err
	}
	t.identify(backend.IdentityOf(bus.Backend()))
	s := newSampler(t, bus)
	registration, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.observeCounts(o, &g, bus.Subscriptions())
		t.observeGroups(o, &g, s.sample()) //nolint:contextcheck // a refresh outlives the collection that starts it
		return nil
	}, all...)
	if err != nil {
		s.stop()
		return nil, err
	}
	return func() {
		_ = registration.Unregister() // Unregister only fails for a registration of another SDK
		s.stop()
	}, nil
}

// A groupName names a group of a topic.
type groupName struct{ topic, group string }

// observeCounts sets the gauges of groups to the sums over their subscriptions.
func (t *Telemetry) observeCounts(o metric.Observer, g *gauges, subscriptions []*eventbus.Subscription) {
	type sum struct {
		held, bytes, running, degraded, limited, partitions int64
		shares                                              bool // partitions with other members
	}
	sums := map[groupName]sum{}
	for _, s := range subscriptions {
		at := groupName{s.Topic(), each.Label(s.Group())}
		now, all := s.Counts(), sums[at]
		all.held, all.bytes, all.running = all.held+now.Held, all.bytes+now.HeldBytes, all.running+now.Running
		switch state, _ := s.State(); state {
		case observer.Degraded:
			all.degraded++
		case observer.Limited:
			all.limited++
		}
		if owned := s.Partitions(); owned != nil {
			all.partitions, all.shares = all.partitions+int64(len(owned)), true
		}
		sums[at] = all
	}
	for at, sum := range sums {
		set := t.labels.of(labels{topic: at.topic, group: at.group}).observe
		o.ObserveInt64(g.held, sum.held, set...)
		o.ObserveInt64(g.bytes, sum.bytes, set...)
		o.ObserveInt64(g.running, sum.running, set...)
		o.ObserveInt64(g.degraded, sum.degraded, set...)
		o.ObserveInt64(g.limited, sum.limited, set...)
		if sum.shares {
			o.ObserveInt64(g.partitions, sum.partitions, set...)
		}
	}
}

// observeGroups sets the gauges of groups to those numbers of their backend.Stats that are known.
func (t *Telemetry) observeGroups(o metric.Observer, g *gauges, groups map[groupName]backend.Stats) {
	for at, now := range groups {
		set := t.labels.of(labels{topic: at.topic, group: at.group}).observe
		known := func(gauge metric.Int64ObservableGauge, value int64, set []metric.ObserveOption) {
			if value >= 0 { // otherwise it is backend.Unknown
				o.ObserveInt64(gauge, value, set...)
			}
		}
		known(g.lag, now.Lag, set)
		known(g.inFlight, now.InFlight, set)
		known(g.delayed, now.Delayed, set)
		known(g.members, now.Members, set)
		known(g.depth, now.Depth, t.labels.of(labels{topic: at.topic}).observe)
		age := 0.0
		if !now.Oldest.IsZero() {
			age = max(time.Since(now.Oldest), 0).Seconds() // the broker's clock may be ahead
		}
		o.ObserveFloat64(g.age, age, set...)
	}
}

// A sampler asks the backend for the backend.Stats of the groups of a bus and caches them. Its
// goroutine runs only while it asks.
type sampler struct {
	telemetry  *Telemetry
	bus        *eventbus.Bus
	ctx        context.Context // the context of the calls to the backend
	cancel     context.CancelFunc
	refreshing sync.WaitGroup

	mu    sync.Mutex
	next  time.Time     // when the cached stats expire
	ended chan struct{} // closed when the latest refresh has ended
	known map[groupName]backend.Stats
}

const (
	refreshTimeout = 5 * time.Second        // the most time to ask about all groups
	maxWait        = 250 * time.Millisecond // the most time that a collection of metrics waits for new answers
)

func newSampler(t *Telemetry, bus *eventbus.Bus) *sampler {
	s := &sampler{telemetry: t, bus: bus, ended: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	close(s.ended)
	return s
}

// stop ends a running refresh, waits for it, and prevents later ones.
func (s *sampler) stop() {
	s.mu.Lock()
	s.cancel() // with mu held, so that begin starts no refresh afterwards
	s.mu.Unlock()
	s.refreshing.Wait()
}

// sample returns the cached stats. If they have expired, it starts a refresh first and waits for
// it, for at most maxWait.
func (s *sampler) sample() map[groupName]backend.Stats {
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-s.begin():
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known // the caller may read the map, because refresh replaces it and never changes it
}

// begin starts a refresh if the cached stats have expired. It returns a channel that is closed when
// the latest refresh has ended.
func (s *sampler) begin() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
	default:
		return s.ended
	}
	if now := time.Now(); s.ctx.Err() == nil && !now.Before(s.next) {
		s.next, s.ended = now.Add(s.telemetry.options.SampleEvery), make(chan struct{})
		ended := s.ended
		s.refreshing.Go(func() {
			defer close(ended)
			s.refresh()
		})
	}
	return s.ended
}

// refresh asks the backend about one group after another.
func (s *sampler) refresh() {
	ctx, cancel := context.WithTimeout(s.ctx, refreshTimeout)
	defer cancel()
	answers, last := map[groupName]backend.Stats{}, groupName{}
	for _, sub := range s.bus.Subscriptions() { // sorted, so that members of one group are adjacent
		at := groupName{sub.Topic(), sub.Group()}
		if at == last {
			continue
		}
		last = at
		stats, err := sub.Stats(ctx)
		switch {
		case err == nil:
			shown := groupName{at.topic, each.Label(at.group)}
			if before, twice := answers[shown]; !twice || before.Lag < stats.Lag { // of several instances, the one that is behind
				answers[shown] = stats
			}
		case !errors.Is(err, errors.ErrUnsupported) && s.ctx.Err() == nil:
			s.telemetry.count(s.telemetry.failures, 1,
				labels{topic: at.topic, group: at.group, scope: "stats", errorType: errorType(err)})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = answers
}
