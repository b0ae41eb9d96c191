package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
)

// instruments are the metrics that the hooks and the middleware record.
type instruments struct {
	operations   metric.Float64Histogram
	processes    metric.Float64Histogram
	sentMessages metric.Int64Counter
	consumed     metric.Int64Counter

	queueTime   metric.Float64Histogram
	batches     metric.Int64Histogram
	dropped     metric.Int64Counter
	reads       metric.Int64Histogram
	attempts    metric.Int64Counter
	redelivered metric.Int64Counter
	deadLetters metric.Int64Counter
	discards    metric.Int64Counter
	extended    metric.Int64Counter
	lost        metric.Int64Counter
	moved       metric.Int64Counter
	stuck       metric.Int64Counter
	failures    metric.Int64Counter
	unseen      metric.Int64Counter
}

var (
	// durations holds the boundaries that the conventions prescribe, in seconds.
	durations = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

	// waits has boundaries up to hours, in seconds, because an event may wait for hours.
	waits = metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400)

	sizes = metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
)

func newInstruments(m metric.Meter) (i instruments, err error) {
	var errs []error
	operations, err := messagingconv.NewClientOperationDuration(m, durations)
	errs = append(errs, err)
	processes, err := messagingconv.NewProcessDuration(m, durations)
	errs = append(errs, err)
	sent, err := messagingconv.NewClientSentMessages(m)
	errs = append(errs, err)
	consumed, err := messagingconv.NewClientConsumedMessages(m)
	errs = append(errs, err)
	i.operations, i.processes, i.sentMessages, i.consumed = operations.Inst(), processes.Inst(), sent.Inst(), consumed.Inst()

	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	i.queueTime, err = m.Float64Histogram("eventbus.queue.time", metric.WithUnit("s"), waits,
		metric.WithDescription("Time from an event's own time to the start of its first run."))
	errs = append(errs, err)
	i.batches, err = m.Int64Histogram("eventbus.publish.batch.size", metric.WithUnit("{message}"), sizes,
		metric.WithDescription("Events per call to Publish."))
	errs = append(errs, err)
	i.reads, err = m.Int64Histogram("eventbus.receive.batch.size", metric.WithUnit("{message}"), sizes,
		metric.WithDescription("Events per read."))
	errs = append(errs, err)
	i.dropped = counter("eventbus.dropped.messages", "{message}", "Events that were not stored because too many were waiting to be published.")
	i.attempts = counter("eventbus.attempts", "{attempt}", "Runs of handlers, by outcome.")
	i.redelivered = counter("eventbus.redelivered.messages", "{message}", "Deliveries after the first, of all members of the group.")
	i.deadLetters = counter("eventbus.dead_letters", "{message}", "Events stored in a dead-letter topic.")
	i.discards = counter("eventbus.discarded.messages", "{message}", "Events acknowledged without success.")
	i.extended = counter("eventbus.leases.extended", "{lease}", "Leases that were extended.")
	i.lost = counter("eventbus.leases.lost", "{lease}", "Leases that expired or that another member took over.")
	i.moved = counter("eventbus.partitions.moved", "{partition}", "Partitions that this program gained, gave back or lost.")
	i.stuck = counter("eventbus.handlers.stuck", "{handler}", "Handlers that did not return within five seconds of their timeout.")
	i.failures = counter("eventbus.failures", "{failure}", "Failures that no call returns.")
	i.unseen = counter("eventbus.observer.dropped", "{occurrence}", "Calls of observer hooks that were dropped because earlier ones were too slow.")
	return i, errors.Join(errs...)
}

// count adds n to the counter c, with the attributes l.
func (t *Telemetry) count(c metric.Int64Counter, n int, l labels) {
	defer contain()
	if n > 0 {
		c.Add(context.Background(), int64(n), t.labels.of(l).add...)
	}
}
