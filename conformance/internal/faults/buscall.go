package faults

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/verbs"
)

// A busOp is a method of a bus. PublishReceipts is busPublish too, and PublishIn busPublishAt.
type busOp string

// The methods.
const (
	busPublish   busOp = "Publish"
	busPublishAt busOp = "PublishAt"
	busCancel    busOp = "CancelScheduled"
	busScheduled busOp = "Scheduled"
	busRecur     busOp = "Recur"
	busEnd       busOp = "EndRecurring"
	busPause     busOp = "PauseRecurring"
	busSubscribe busOp = "Subscribe"
	busDeclare   busOp = "Declare"
	busReady     busOp = "Ready"
	busShutdown  busOp = "Shutdown"
)

// A busCall is one call of a method: its arguments and, after next, its results.
type busCall struct {
	op  busOp
	bus *Bus

	ctx       context.Context
	topic     string
	events    []*eventbus.Event // of busPublish and busPublishAt: copies
	lent      []*eventbus.Event // the events of the caller
	at        time.Time         // of busPublishAt
	ids       []string          // of busCancel, busEnd and busPause
	recurring eventbus.Recurring
	options   eventbus.SubscribeOptions
	handler   eventbus.Handler
	receipts  []eventbus.Receipt
	found     []bool // result of busCancel and busEnd
	list      iter.Seq2[eventbus.ScheduledEvent, error]
	sub       *eventbus.Subscription
	err       error

	do func(*busCall)
}

func (c *busCall) next() { c.do(c) }

// A run is one call of a handler, with one delivery, or of a batch handler. It returns an
// error for each delivery, or nil.
type run func(ctx context.Context, ds []*eventbus.Delivery) []error

// A busFault is a fault of a bus. All fields that are set take effect.
type busFault struct {
	options   func(*eventbus.Options)                        // changes the options of the bus
	subscribe func(*eventbus.SubscribeOptions)               // changes the options of each subscription
	batch     func(*eventbus.Batch)                          // changes the bounds of batches
	event     func(*eventbus.Event)                          // changes each event that is published
	run       func(bus *Bus, b eventbus.Batch, next run) run // changes the runs of handlers; called once for each subscription
	manual    func(next eventbus.ManualHandler) eventbus.ManualHandler

	on []busOp // the methods whose calls do changes
	do func(*busCall)
}

// A Bus calls a good eventbus.Bus. Its fault changes some of the calls.
type Bus struct {
	good     *eventbus.Bus
	fault    *busFault
	reply    atomic.Value // the correlation of the last reply, for bus-mixes-replies
	shutDown atomic.Bool  // Shutdown was called, for bus-closes-publishing-first
}

// Bus returns a bus with the fault. It is shut down when the test ends.
func (f Fault) Bus(t *testing.T, b backend.Backend, o eventbus.Options) *Bus {
	fault := f.bus
	if f.Member {
		fault, b = &busFault{}, f.Wrap(complete{b, passing(b)})
	}
	if fault.options != nil {
		fault.options(&o)
	}
	good, err := eventbus.New(b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Hour)
		defer cancel()
		_ = good.Shutdown(ctx)
	})
	return &Bus{good: good, fault: fault}
}

// A complete backend has all optional verbs of the backend that it wraps.
type complete struct {
	backend.Backend
	verbs.Verbs
}

func (c complete) Limits() backend.Limits { return backend.LimitsOf(c.Backend) }

func passing(b backend.Backend) verbs.Verbs {
	return verbs.Verbs{Of: b, Around: func(_ context.Context, _, _ string, do func() error) error { return do() }}
}

func (b *Bus) call(c *busCall, real func(*busCall)) error {
	c.bus, c.do = b, real
	if slices.Contains(b.fault.on, c.op) {
		b.fault.do(c)
	} else {
		real(c)
	}
	return c.err
}

// copied returns copies of events, which the fault may have changed.
func (b *Bus) copied(events []*eventbus.Event) []*eventbus.Event {
	all := make([]*eventbus.Event, len(events))
	for i, e := range events {
		own := *e
		if b.fault.event != nil {
			b.fault.event(&own)
		}
		all[i] = &own
	}
	return all
}

// Publish calls PublishReceipts.
func (b *Bus) Publish(ctx context.Context, topic string, events ...*eventbus.Event) error {
	_, err := b.PublishReceipts(ctx, topic, events...)
	return err
}

// PublishReceipts implements [eventbus.ReceiptPublisher]. It returns a receipt for each event,
// even if the fault has dropped events.
func (b *Bus) PublishReceipts(ctx context.Context, topic string, events ...*eventbus.Event) ([]eventbus.Receipt, error) {
	c := &busCall{op: busPublish, ctx: ctx, topic: topic, events: b.copied(events), lent: events}
	err := b.call(c, func(c *busCall) { c.receipts, c.err = b.good.PublishReceipts(c.ctx, c.topic, c.events...) })
	return append(c.receipts, make([]eventbus.Receipt, max(0, len(events)-len(c.receipts)))...), err
}

// PublishAt implements [eventbus.Scheduler].
func (b *Bus) PublishAt(ctx context.Context, topic string, at time.Time, events ...*eventbus.Event) error {
	return b.call(&busCall{op: busPublishAt, ctx: ctx, topic: topic, at: at, events: b.copied(events), lent: events}, func(c *busCall) {
		c.err = b.good.PublishAt(c.ctx, c.topic, c.at, c.events...)
	})
}

// PublishIn implements [eventbus.Scheduler].
func (b *Bus) PublishIn(ctx context.Context, topic string, in time.Duration, events ...*eventbus.Event) error {
	return b.PublishAt(ctx, topic, time.Now().Add(in), events...)
}

// CancelScheduled is like that of an [eventbus.Bus].
func (b *Bus) CancelScheduled(ctx context.Context, topic string, ids ...string) ([]bool, error) {
	c := &busCall{op: busCancel, ctx: ctx, topic: topic, ids: ids}
	err := b.call(c, func(c *busCall) { c.found, c.err = b.good.CancelScheduled(c.ctx, c.topic, c.ids...) })
	return c.found, err
}

// Scheduled is like that of an [eventbus.Bus].
func (b *Bus) Scheduled(ctx context.Context, topic string) iter.Seq2[eventbus.ScheduledEvent, error] {
	c := &busCall{op: busScheduled, ctx: ctx, topic: topic, list: func(func(eventbus.ScheduledEvent, error) bool) {}}
	_ = b.call(c, func(c *busCall) { c.list = b.good.Scheduled(c.ctx, c.topic) })
	return c.list
}

// Recur is like that of an [eventbus.Bus].
func (b *Bus) Recur(ctx context.Context, r eventbus.Recurring) error {
	return b.call(&busCall{op: busRecur, ctx: ctx, topic: r.Topic, recurring: r}, func(c *busCall) { c.err = b.good.Recur(c.ctx, c.recurring) })
}

// EndRecurring is like that of an [eventbus.Bus].
func (b *Bus) EndRecurring(ctx context.Context, topic string, ids ...string) ([]bool, error) {
	c := &busCall{op: busEnd, ctx: ctx, topic: topic, ids: ids}
	err := b.call(c, func(c *busCall) { c.found, c.err = b.good.EndRecurring(c.ctx, c.topic, c.ids...) })
	return c.found, err
}

// PauseRecurring is like that of an [eventbus.Bus].
func (b *Bus) PauseRecurring(ctx context.Context, topic, id string, paused bool) error {
	return b.call(&busCall{op: busPause, ctx: ctx, topic: topic, ids: []string{id}}, func(c *busCall) {
		c.err = b.good.PauseRecurring(c.ctx, c.topic, id, paused)
	})
}

// RecurringEntries is like that of an [eventbus.Bus].
func (b *Bus) RecurringEntries(ctx context.Context, topic string) ([]eventbus.RecurringState, error) {
	return b.good.RecurringEntries(ctx, topic)
}

// Declare is like that of an [eventbus.Bus].
func (b *Bus) Declare(ctx context.Context, topic string, o eventbus.SubscribeOptions) error {
	return b.call(&busCall{op: busDeclare, ctx: ctx, topic: topic, options: b.optionsOf(o)}, func(c *busCall) {
		c.err = b.good.Declare(c.ctx, c.topic, c.options)
	})
}

func (b *Bus) optionsOf(o eventbus.SubscribeOptions) eventbus.SubscribeOptions {
	if b.fault.subscribe != nil {
		b.fault.subscribe(&o)
	}
	return o
}

// wrapped returns next with the fault of runs. A handler of single events has batches of one.
func (b *Bus) wrapped(batch eventbus.Batch, next run) run {
	if b.fault.run == nil {
		return next
	}
	return b.fault.run(b, batch, next)
}

// Subscribe implements [eventbus.Subscriber].
func (b *Bus) Subscribe(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.Handler) (*eventbus.Subscription, error) {
	if b.fault.run != nil && !isDeadLetter(topic) {
		good := h
		do := b.wrapped(eventbus.Batch{MaxSize: 1}, func(ctx context.Context, ds []*eventbus.Delivery) []error { return []error{good(ctx, ds[0])} })
		h = func(ctx context.Context, d *eventbus.Delivery) error {
			if isDeadLetter(d.Topic) {
				return good(ctx, d)
			}
			return only(do(ctx, []*eventbus.Delivery{d}))
		}
	}
	c := &busCall{op: busSubscribe, ctx: ctx, topic: topic, options: b.optionsOf(o), handler: h}
	err := b.call(c, func(c *busCall) { c.sub, c.err = b.good.Subscribe(c.ctx, c.topic, c.options, c.handler) })
	return c.sub, err
}

// isDeadLetter reports whether topic is a dead-letter topic, whose handlers belong to the
// test.
func isDeadLetter(topic string) bool { return len(topic) > 4 && topic[len(topic)-4:] == ".dlq" }

// only returns the error of a run with one delivery.
func only(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// SubscribeManual is like that of an [eventbus.Bus].
func (b *Bus) SubscribeManual(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.ManualHandler) (*eventbus.Subscription, error) {
	if b.fault.manual != nil {
		h = b.fault.manual(h)
	}
	return b.good.SubscribeManual(ctx, topic, b.optionsOf(o), h)
}

// SubscribeBatch is like that of an [eventbus.Bus].
func (b *Bus) SubscribeBatch(ctx context.Context, topic string, o eventbus.SubscribeOptions, batch eventbus.Batch, h eventbus.BatchHandler) (*eventbus.Subscription, error) {
	do := b.wrapped(batch, run(h))
	if b.fault.batch != nil {
		b.fault.batch(&batch)
	}
	return b.good.SubscribeBatch(ctx, topic, b.optionsOf(o), batch, eventbus.BatchHandler(do))
}

// Backend returns the backend of the good bus.
func (b *Bus) Backend() backend.Backend { return b.good.Backend() }

// Ready is like that of an [eventbus.Bus].
func (b *Bus) Ready(ctx context.Context) error {
	return b.call(&busCall{op: busReady, ctx: ctx}, func(c *busCall) { c.err = b.good.Ready(c.ctx) })
}

// Shutdown is like that of an [eventbus.Bus].
func (b *Bus) Shutdown(ctx context.Context) error {
	return b.call(&busCall{op: busShutdown, ctx: ctx}, func(c *busCall) { c.err = b.good.Shutdown(c.ctx) })
}
