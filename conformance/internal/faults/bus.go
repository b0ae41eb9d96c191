package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/request"
)

// ofBuses returns the faults of buses.
func ofBuses() []Fault {
	return slices.Concat(optionFaults, busPublishFaults, runFaults, scheduleFaults, subscriptionFaults, memberFaults, partitionFaults)
}

var counter atomic.Int64

var optionFaults = []Fault{
	{Name: "bus-ignores-options", Breaks: "Options are accepted, and ignored", bus: &busFault{options: func(o *eventbus.Options) {
		o.Dedup, o.WhenFull, o.MaxPayload, o.Middleware, o.PublishMiddleware, o.Topics, o.Instance = false, eventbus.WaitWhenFull, 0, nil, nil, nil, ""
	}}},
	{Name: "bus-ignores-limits", Breaks: "limits of subscriptions are accepted, and ignored", bus: &busFault{subscribe: func(o *eventbus.SubscribeOptions) {
		o.Limiter, o.MaxBytes, o.MaxRedelivered, o.MaxReceive, o.MaxConcurrency = nil, -1, 0, 0, 0
	}}},
	{Name: "bus-exceeds-limits", Breaks: "bounds are a hint", bus: &busFault{
		subscribe: func(o *eventbus.SubscribeOptions) {
			if o.Concurrency, o.MaxInFlight = 2*o.Concurrency, 2*o.MaxInFlight; o.MaxConcurrency > 0 {
				o.MaxConcurrency = max(o.Concurrency, o.MaxConcurrency+2)
			}
			if o.Limiter != nil {
				o.Limiter = &overrun{o.Limiter}
			}
		},
		batch: func(b *eventbus.Batch) { b.MaxSize, b.MaxBytes = 2*b.MaxSize, 0 },
	}},
	{Name: "bus-ignores-failure-options", Breaks: "all failures are alike", bus: &busFault{
		subscribe: func(o *eventbus.SubscribeOptions) {
			o.Retry.Rules, o.LeaveTimeouts, o.OnDeadLetter, o.DeadLetterOnReceive, o.OnFailure = nil, false, nil, false, eventbus.Skip
		},
	}},
	{Name: "bus-ignores-timeouts", Breaks: "a handler takes its time, and a batch waits until it is full", bus: &busFault{
		subscribe: func(o *eventbus.SubscribeOptions) { o.Timeout = -1 },
		batch:     func(b *eventbus.Batch) { b.MaxWait = time.Hour },
	}},
	{Name: "bus-joins-dead-letters", Breaks: "all dead letters are together", bus: &busFault{subscribe: func(o *eventbus.SubscribeOptions) {
		if len(o.Topics) > 0 || o.Group == eventbus.EachInstance {
			o.DeadLetter = "orders.dlq"
		}
	}}},
	{Name: "bus-retries-for-ever", Breaks: "what ends the process is tried for ever", bus: &busFault{subscribe: func(o *eventbus.SubscribeOptions) { o.Retry.MaxAttempts = -1 }}},
	{Name: "bus-ignores-order", Breaks: "events are handled in any order", bus: &busFault{subscribe: func(o *eventbus.SubscribeOptions) { o.Order = eventbus.Unordered }}},
	{Name: "bus-orders-all", Breaks: "every event waits for the previous event", bus: &busFault{subscribe: func(o *eventbus.SubscribeOptions) { o.Order, o.Concurrency = eventbus.OrderTotal, 1 }}},
	{Name: "bus-acks-on-success", Breaks: "an event is settled when it is handled", bus: &busFault{subscribe: func(o *eventbus.SubscribeOptions) { o.Ack = eventbus.AckOnSuccess }}},
	{Name: "bus-inverts-starts", Breaks: "a new group gets new events, unless it wants them", bus: &busFault{subscribe: func(o *eventbus.SubscribeOptions) {
		if o.Start == eventbus.StartLatest {
			o.Start = eventbus.StartEarliest
		} else {
			o.Start = eventbus.StartLatest
		}
	}}},
	{Name: "bus-shares-each", Breaks: "the instances of a program are one group", bus: &busFault{subscribe: func(o *eventbus.SubscribeOptions) {
		if o.Group == eventbus.EachInstance {
			o.Group, o.Start = "each", eventbus.StartLatest
		}
	}}},
}

// overrun is a limiter that grants all requested slots, without a bound in bytes, if the
// real limiter grants at least one. It hides held messages from the real limiter, and reports
// every run as a success.
type overrun struct{ limiter.Limiter }

func (o *overrun) Acquire(ctx context.Context, max int) (limiter.Grant, error) {
	g, err := o.Limiter.Acquire(ctx, max)
	if g.Messages == 0 {
		return g, err
	}
	o.Limiter.Fill(g, 0, 0)
	return limiter.Grant{Messages: max}, err
}

func (o *overrun) Fill(limiter.Grant, int, int64) {}

func (o *overrun) Release(r limiter.Released) {
	r.Settled, r.Bytes, r.Failed = 0, 0, 0
	o.Limiter.Release(r)
}

// both lists the methods that publish events.
var both = []busOp{busPublish, busPublishAt}

var busPublishFaults = []Fault{
	{Name: "bus-loses-one-in-ten", Breaks: "what is published is stored, mostly", bus: &busFault{on: both, do: func(c *busCall) {
		c.events = slices.DeleteFunc(c.events, func(e *eventbus.Event) bool { return counter.Add(1)%10 == 0 || len(e.Payload) > 64<<10 })
		c.next()
	}}},
	{Name: "bus-drops-fields", Breaks: "most fields of an event arrive", bus: &busFault{event: func(e *eventbus.Event) {
		e.Subject, e.Retry, e.TTL, e.Once, e.Payload = "", nil, 0, "", bytes.TrimSpace(e.Payload)
	}}},
	{Name: "bus-reverses-events", Breaks: "events of a call are stored in some order", bus: &busFault{on: both, do: func(c *busCall) {
		slices.Reverse(c.events)
		c.next()
	}}},
	{Name: "bus-corrects-events", Breaks: "every name and every event is welcome", bus: &busFault{
		event: func(e *eventbus.Event) { e.Payload = e.Payload[:min(len(e.Payload), eventbus.MaxPayload)] },
		on:    both, do: func(c *busCall) {
			if backend.CheckName(c.topic) != nil {
				c.topic = "corrected"
			}
			c.next()
		},
	}},
	{Name: "bus-blurs-results", Breaks: "a Publish says that something failed, and a receipt is in the events of the caller", bus: &busFault{on: []busOp{busPublish}, do: func(c *busCall) {
		if c.next(); c.err != nil {
			c.err = errors.New("something failed")
		}
		for i := range c.receipts {
			c.lent[i].ID, c.receipts[i].Position = c.receipts[i].ID, ""
		}
	}}},
	{Name: "bus-ignores-contexts", Breaks: "calls and handlers take their time", bus: &busFault{
		run: eachRun(func(ctx context.Context, ds []*eventbus.Delivery, next run) []error {
			return next(context.WithoutCancel(ctx), ds)
		}),
		on: []busOp{busPublish, busShutdown}, do: func(c *busCall) {
			if c.op == busPublish {
				c.ctx = context.WithoutCancel(c.ctx)
			}
			if c.next(); c.ctx.Err() != nil {
				time.Sleep(10 * time.Second)
			}
		},
	}},
}

// eachRun returns the run of a fault without state.
func eachRun(do func(ctx context.Context, ds []*eventbus.Delivery, next run) []error) func(*Bus, eventbus.Batch, run) run {
	return func(_ *Bus, _ eventbus.Batch, next run) run {
		return func(ctx context.Context, ds []*eventbus.Delivery) []error { return do(ctx, ds, next) }
	}
}

// eachError replaces each error of a handler.
func eachError(change func(error) error) func(*Bus, eventbus.Batch, run) run {
	return eachRun(func(ctx context.Context, ds []*eventbus.Delivery, next run) []error {
		errs := next(ctx, ds)
		for i, err := range errs {
			if err != nil {
				errs[i] = change(err)
			}
		}
		return errs
	})
}

var runFaults = []Fault{
	{Name: "bus-forgives-failures", Breaks: "a handler that returns an error, panics or ends its goroutine is done", bus: &busFault{run: eachRun(func(ctx context.Context, ds []*eventbus.Delivery, next run) []error {
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { _ = recover() }()
			next(ctx, ds)
		})
		wg.Wait()
		return nil
	})}},
	{Name: "bus-drops-batches", Breaks: "a batch that is not full is acknowledged", bus: &busFault{run: func(_ *Bus, b eventbus.Batch, next run) run {
		return func(ctx context.Context, ds []*eventbus.Delivery) []error {
			if full, err := b.Effective(); err != nil || len(ds) < full.MaxSize {
				return nil
			}
			return next(ctx, ds)
		}
	}}},
	{Name: "bus-runs-twice", Breaks: "each event is handled at least once, and some more", bus: &busFault{run: eachRun(func(ctx context.Context, ds []*eventbus.Delivery, next run) []error {
		first, second := next(ctx, ds), next(ctx, ds)
		if first == nil {
			return second
		}
		return first
	})}},
	{Name: "bus-fails-late-success", Breaks: "what comes too late has failed", bus: &busFault{run: eachRun(func(ctx context.Context, ds []*eventbus.Delivery, next run) []error {
		errs := next(ctx, ds)
		if ctx.Err() != nil && errs == nil {
			return slices.Repeat([]error{ctx.Err()}, len(ds))
		}
		if ctx.Err() != nil && errs[0] == nil {
			errs[0] = ctx.Err()
		}
		return errs
	})}},
	{Name: "bus-polls", Breaks: "an event is handled in the end", bus: &busFault{run: eachRun(func(ctx context.Context, ds []*eventbus.Delivery, next run) []error {
		time.Sleep(time.Second)
		return next(ctx, ds)
	})}},
	{Name: "bus-mixes-deliveries", Breaks: "a handler finds what an earlier one has left, and a reply is for whoever waits", bus: &busFault{
		run: func(_ *Bus, _ eventbus.Batch, next run) run {
			var seen sync.Map
			var topic atomic.Value
			return func(ctx context.Context, ds []*eventbus.Delivery) []error {
				for i, d := range ds {
					topic.CompareAndSwap(nil, d.Topic)
					first, _ := seen.LoadOrStore(d.Topic+d.Position, d)
					ds[i] = first.(*eventbus.Delivery)
					ds[i].Topic, ds[i].Redelivered = topic.Load().(string), false
				}
				return next(ctx, ds)
			}
		},
		on: []busOp{busPublish}, do: func(c *busCall) {
			for _, e := range c.events {
				if last, ok := e.Headers.Lookup(request.Correlation); ok && c.topic == "replies" {
					if before, _ := c.bus.reply.Swap(last).(string); before != "" {
						e.Headers.Set(request.Correlation, before)
					}
				}
			}
			c.next()
		},
	}},
	{Name: "bus-retries-late", Breaks: "a failed event rests for minutes at least", bus: &busFault{run: eachError(func(error) error { return eventbus.Snooze(5 * time.Minute) })}},
	{Name: "bus-waits-in-place", Breaks: "a retry waits where it is", bus: &busFault{run: eachRun(func(ctx context.Context, ds []*eventbus.Delivery, next run) []error {
		errs := next(ctx, ds)
		if errors.Join(errs...) != nil {
			time.Sleep(10 * time.Minute)
		}
		return errs
	})}},
	{Name: "bus-waits-for-heads", Breaks: "a key waits for the event of it that failed, wherever that is, even if that is dead", bus: &busFault{run: func(_ *Bus, _ eventbus.Batch, next run) run {
		var heads sync.Map
		return func(ctx context.Context, ds []*eventbus.Delivery) []error {
			for _, d := range ds {
				if h, ok := heads.Load(d.Key); ok && h != d.ID {
					<-ctx.Done()
					return slices.Repeat([]error{ctx.Err()}, len(ds))
				}
			}
			errs := next(ctx, ds)
			for i, err := range errs {
				if err != nil {
					heads.Store(ds[i].Key, ds[i].ID)
				}
			}
			return errs
		}
	}}},
	{Name: "bus-settles-manual", Breaks: "an event is settled when its handler has returned", bus: &busFault{manual: func(next eventbus.ManualHandler) eventbus.ManualHandler {
		return func(ctx context.Context, d *eventbus.ManualDelivery) error {
			return errors.Join(next(ctx, d), d.Ack(ctx))
		}
	}}},
}

var scheduleFaults = []Fault{
	{Name: "bus-schedules-nothing", Breaks: "an event that is due later is its publisher's business", bus: &busFault{on: []busOp{busPublishAt, busRecur}, do: func(*busCall) {}}},
	{Name: "bus-rounds-times", Breaks: "events are due at full minutes in the future", bus: &busFault{on: []busOp{busPublishAt}, do: func(c *busCall) {
		c.at = c.at.Truncate(time.Minute).Add(2 * time.Minute)
		if c.at.Before(time.Now()) {
			c.at = time.Now().Add(time.Hour)
		}
		c.next()
	}}},
	{Name: "bus-adds-to-scheduled", Breaks: "an event scheduled again comes again, and its TTL has begun", bus: &busFault{on: []busOp{busPublishAt}, do: func(c *busCall) {
		for _, e := range c.events {
			if e.ID = fmt.Sprint(e.ID, "/", counter.Add(1)); e.TTL > 0 {
				e.TTL = max(e.TTL-time.Until(c.at), 1)
			}
		}
		c.next()
	}}},
	{Name: "bus-cancels-in-words", Breaks: "an event is cancelled when somebody asked for it, and a schedule is nobody's business", bus: &busFault{on: []busOp{busCancel, busEnd, busPause, busScheduled}, do: func(c *busCall) {
		c.found = slices.Repeat([]bool{true}, len(c.ids))
	}}},
	{Name: "bus-restarts-entries", Breaks: "Recur begins an entry, and every firing happens, however late", bus: &busFault{on: []busOp{busRecur}, do: func(c *busCall) {
		c.recurring.Missed = eventbus.FireAll
		if _, c.err = c.bus.good.EndRecurring(c.ctx, c.topic, c.recurring.ID); c.err == nil {
			c.next()
		}
	}}},
}

var subscriptionFaults = []Fault{
	{Name: "bus-resolves-patterns", Breaks: "a pattern stands for the topics that exist at Subscribe and have its parts", bus: &busFault{on: []busOp{busSubscribe}, do: func(c *busCall) {
		if patterns := c.options.Topics; len(patterns) > 0 {
			admin, _ := backend.As[backend.Admin](c.bus.good.Backend())
			topics, err := admin.Topics(c.ctx)
			if err != nil {
				c.err = err
				return
			}
			c.topic, c.options.Topics = "", slices.DeleteFunc(topics, func(topic string) bool {
				return !slices.ContainsFunc(patterns, func(p string) bool {
					at := strings.IndexAny(p+"*", "*>")
					return strings.HasPrefix(topic, p[:at]) && strings.HasSuffix(topic, p[min(at+1, len(p)):])
				})
			})
		}
		c.next()
	}}},
	{Name: "bus-keeps-newcomers-waiting", Breaks: "a bus that runs takes no further group", bus: &busFault{on: []busOp{busSubscribe}, do: func(c *busCall) {
		if c.next(); c.err == nil && len(c.bus.good.Subscriptions()) > 1 {
			c.sub.Pause()
		}
	}}},
	{Name: "bus-never-ready", Breaks: "one can never be sure", bus: &busFault{on: []busOp{busReady}, do: func(c *busCall) { c.err = errors.New("not sure") }}},
	{Name: "bus-never-closes", Breaks: "a Shutdown is a wish", bus: &busFault{on: []busOp{busShutdown}, do: func(*busCall) {}}},
	{Name: "bus-closes-publishing-first", Breaks: "a Shutdown ends publishing at once", bus: &busFault{on: []busOp{busPublish, busShutdown}, do: func(c *busCall) {
		if c.op == busShutdown {
			c.bus.shutDown.Store(true)
		} else if c.bus.shutDown.Load() {
			c.err = eventbus.ErrClosed
			return
		}
		c.next()
	}}},
}

// memberFaults are faults of the runtime that show at its backend: a bus with them would make
// other calls, or would take other results for the truth.
var memberFaults = []Fault{
	{Name: "member-reads-ahead", Member: true, Breaks: "what a member will need soon waits with it, and is kept", On: []Op{Receive, Extend}, New: func() effect {
		var mu sync.Mutex
		ahead := map[*source][]backend.Delivery{}
		return func(c *Call) {
			limit := c.Max
			mu.Lock()
			waiting := ahead[c.Source]
			mu.Unlock()
			if c.Op == Extend {
				c.Acked = append(c.Acked, backend.Lend(waiting)...)
				c.Next()
				return
			}
			if len(waiting) == 0 {
				c.Max = 100
				c.Next()
				waiting = slices.Clone(c.Deliveries)
			}
			n := min(limit, len(waiting))
			c.Deliveries = waiting[:n:n]
			mu.Lock()
			defer mu.Unlock()
			ahead[c.Source] = waiting[n:]
		}
	}},
	{Name: "member-reads-on", Member: true, Breaks: "a Receive ends when a message comes, or minutes after its context", On: []Op{Receive}, Do: func(c *Call) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(c.Ctx))
		defer cancel()
		defer context.AfterFunc(c.Ctx, func() { time.AfterFunc(time.Minute, cancel) })()
		c.Ctx = ctx
		for c.Next(); len(c.Deliveries) == 0 && c.Err == nil && ctx.Err() == nil; c.Next() {
		}
	}},
	{Name: "member-gives-up", Member: true, Breaks: "a subscription ends with its connection or its group", On: []Op{Attach, Receive}, New: func() effect {
		var left sync.Map
		var seen set
		return func(c *Call) {
			if c.Op == Attach && !seen.add(c.group()) {
				c.Err = fmt.Errorf("not twice: %w", backend.ErrUnavailable)
				return
			}
			if _, ok := left.Load(c.Source); ok && c.Op == Receive {
				<-c.Ctx.Done()
				c.Err = c.Ctx.Err()
				return
			}
			if c.Next(); c.Op == Receive && c.Err != nil && c.Ctx.Err() == nil {
				left.Store(c.Source, true)
			}
		}
	}},
	{Name: "member-fails-with-others", Member: true, Breaks: "while one topic cannot be read, nothing is read", On: []Op{Receive}, New: func() effect {
		var failing sync.Map
		return func(c *Call) {
			others := false
			failing.Range(func(s, _ any) bool { others = others || s != c.Source; return !others })
			if others {
				c.Err = backend.ErrDenied
				return
			}
			if c.Next(); errors.Is(c.Err, backend.ErrDenied) {
				failing.Store(c.Source, true)
			} else {
				failing.Delete(c.Source)
			}
		}
	}},
	{Name: "dead-letters-lost", Member: true, Breaks: "an event has one dead letter in its life, with the payload, the attributes and the reason", On: []Op{Publish, Receive}, New: func() effect {
		var buried set
		return func(c *Call) {
			c.Messages = slices.DeleteFunc(c.Messages, func(m *backend.Message) bool {
				m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h backend.Header) bool {
					own := !strings.HasPrefix(h.Name, "ce-") && !strings.HasPrefix(h.Name, "eventbus-")
					return isDeadLetter(m.Topic) && own || h.Name == "eventbus-dead-redriven"
				})
				return isDeadLetter(m.Topic) && !buried.add(m.Headers.Get("eventbus-dead-id")+" "+m.Headers.Get("eventbus-dead-group"))
			})
			c.Next()
			for i := range c.Deliveries {
				c.Deliveries[i].Headers.Del("ce-redrivegroup")
			}
		}
	}},
}

// ofOwners selects the calls about the topic whose groups own the partitions.
var ofOwners = suffixed(".partitions.owners")

var partitionFaults = []Fault{
	{Name: "partition-leases-long", Member: true, Breaks: "a partition belongs to its owner, dead or alive", On: []Op{Attach}, Do: before(func(c *Call) {
		if ofOwners(c) {
			c.Config.Lease *= 100
		} else if strings.Contains(c.Topic, ".partition-") {
			c.Config.Lease *= 6
		}
	})},
	{Name: "partition-owned-by-all", Member: true, Breaks: "every member owns all partitions", On: []Op{Attach}, Do: when(ofOwners, before(func(c *Call) { c.Config.Group = fmt.Sprint("alone-", counter.Add(1)) }))},
	{Name: "partition-forgets-failed-keys", Member: true, Breaks: "what has failed is the business of its owner", On: []Op{Read}, Do: when(suffixed(".partitions.failed"), func(c *Call) { c.Err = backend.ErrGone })},
}
