package telemetry

import (
	"context"
	"errors"
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

// Watch tells spans and metrics which broker bus uses, if its backend is a
// [backend.Identified]. So call it before Publish and Subscribe. It adds the gauges of bus: the load and the state of its subscriptions, and the
// backend.Stats of their groups. The backend is asked at most once in Options.SampleEvery.
// A collection of metrics waits at most a quarter of a second for new answers. If they
// come later, it shows the previous ones. stop removes the gauges, and returns when the
// last call to the backend has ended.
func (t *Telemetry) Watch(bus *eventbus.Bus) (stop func(), err error) {
	g, all, err := newGauges(t.meter)
	if err != nil {
		return nil, err
	}
	t.identify(backend.IdentityOf(bus.Backend()))
	s := newSampler(t, bus)
	registration, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.observeCounts(o, &g, bus.Subscriptions())
		t.observeGroups(o, &g, s.sample())
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

func newGauges(meter metric.Meter) (g gauges, all []metric.Observable, err error) {
	var errs []error
	add := func(to *metric.Int64ObservableGauge, name, unit, description string) {
		i, err := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		*to, all, errs = i, append(all, i), append(errs, err)
	}
	add(&g.held, "eventbus.held.messages", "{message}", "Events that this program holds.")
	add(&g.bytes, "eventbus.held.size", "By", "Size of the events that this program holds.")
	add(&g.running, "eventbus.handlers.running", "{handler}", "Handlers that run.")
	add(&g.degraded, "eventbus.subscription.degraded", "{subscription}", "Subscriptions that cannot reach their backend.")
	add(&g.limited, "eventbus.subscription.limited", "{subscription}", "Subscriptions whose limiter lets them read nothing, such as an open breaker.")
	add(&g.partitions, "eventbus.subscription.partitions", "{partition}", "Partitions that subscriptions of this program own.")
	add(&g.lag, "eventbus.group.lag", "{message}", "Events that were never delivered to the group.")
	add(&g.inFlight, "eventbus.group.in_flight", "{message}", "Events held by a member of the group.")
	add(&g.delayed, "eventbus.group.delayed", "{message}", "Events of the group that wait for a retry.")
	add(&g.members, "eventbus.group.members", "{member}", "Members of the group.")
	add(&g.depth, "eventbus.topic.depth", "{message}", "Events that the topic keeps.")
	g.age, err = meter.Float64ObservableGauge("eventbus.group.oldest.age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest event that the group has not settled; 0 if there is none."))
	return g, append(all, g.age), errors.Join(append(errs, err)...)
}

// A place names a group by its topic and its name.
type place struct{ topic, group string }

// observeCounts sets the gauges of groups to the sums of the counts of their subscriptions.
func (t *Telemetry) observeCounts(o metric.Observer, g *gauges, subscriptions []*eventbus.Subscription) {
	type sum struct {
		held, bytes, running, degraded, limited, partitions int64
		shares                                              bool // partitions with other members
	}
	sums := map[place]sum{}
	for _, s := range subscriptions {
		at := place{s.Topic(), each.Label(s.Group())}
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

// observeGroups sets the gauges of groups to the numbers of their backend.Stats that are
// known.
func (t *Telemetry) observeGroups(o metric.Observer, g *gauges, groups map[place]backend.Stats) {
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
