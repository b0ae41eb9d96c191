package badbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

var subscribed atomic.Int64

// consuming has the saboteurs that break the promises of subscriptions.
var consuming = []Saboteur{
	{
		Name: "bus-gives-up-early", Breaks: "a failed event is done",
		handler: wrapped(func(err error) error { return nil }),
	},
	{
		Name: "bus-shares-groups", Breaks: "each event reaches one of the groups",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Group = "shared" },
	},
	{
		Name: "bus-renames-groups", Breaks: "a member that comes back is a new group",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Group = fmt.Sprint(o.Group, "-", subscribed.Add(1)) },
	},
	{
		Name: "bus-runs-twice", Breaks: "each event is handled at least once, and some more",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				return errors.Join(next(ctx, d), next(ctx, d))
			}
		},
	},
	{
		Name: "bus-republishes-retries", Breaks: "a failed event is published again",
		handler: func(b *Bus, topic string, next eventbus.Handler) eventbus.Handler {
			var tried sync.Map
			return func(ctx context.Context, d *eventbus.Delivery) error {
				err := next(ctx, d)
				if _, again := tried.LoadOrStore(d.ID, true); err != nil && !again {
					again := d.Event
					return b.good.Publish(ctx, topic, &again)
				}
				return err
			}
		},
	},
	{
		Name: "bus-starts-late", Breaks: "a new group gets what is published from now on",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Start = eventbus.StartLatest },
	},
	{
		Name: "bus-starts-early", Breaks: "a new group gets everything",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Start = eventbus.StartEarliest },
	},
	{
		Name: "bus-miscounts", Breaks: "attempts grow",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				if d.Attempt > 2 {
					d.Attempt++
				}
				return next(ctx, d)
			}
		},
	},
	{
		Name: "bus-shares-deliveries", Breaks: "a handler finds what the one before left",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			var seen sync.Map
			return func(ctx context.Context, d *eventbus.Delivery) error {
				first, _ := seen.LoadOrStore(d.Position, d)
				return next(ctx, first.(*eventbus.Delivery))
			}
		},
	},
	{
		Name: "bus-serves-one-at-a-time", Breaks: "handlers of a process take turns",
		handler: func(b *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				b.turn <- struct{}{}
				defer func() { <-b.turn }()
				return next(ctx, d)
			}
		},
	},
	{
		Name: "bus-polls", Breaks: "an event is handled in the end",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				time.Sleep(time.Second)
				return next(ctx, d)
			}
		},
	},
	{
		Name: "bus-hides-contexts", Breaks: "a handler is left in peace",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error { return next(context.WithoutCancel(ctx), d) }
		},
	},
	{
		Name: "bus-without-timeouts", Breaks: "a handler takes its time",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Timeout = -1 },
	},
	{
		Name: "bus-fails-late-success", Breaks: "what comes too late has failed",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				return errors.Join(next(ctx, d), ctx.Err())
			}
		},
	},
	{
		Name: "bus-waits-in-place", Breaks: "a retry waits where it is",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				err := next(ctx, d)
				if err != nil {
					time.Sleep(10 * time.Minute)
				}
				return err
			}
		},
	},
	{
		Name: "bus-retries-permanent", Breaks: "every failure is tried again",
		handler: wrapped(func(err error) error { return errors.New(err.Error()) }),
	},
	{
		Name: "bus-loses-dead-letters", Breaks: "what fails for good is forgotten",
		subscribe: func(o *eventbus.SubscribeOptions) { o.DeadLetter = eventbus.DiscardDeadLetters },
	},
	{
		Name: "bus-skips-failures", Breaks: "later events of a key never follow one that failed for good",
		subscribe: func(o *eventbus.SubscribeOptions) { o.OnFailure = eventbus.Skip },
	},
	{
		Name: "bus-buries-suspects", Breaks: "what was handed out too often is put aside unrun",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				if d.Attempt > 3 {
					return eventbus.Permanent(errors.New("suspect"))
				}
				return next(ctx, d)
			}
		},
	},
	{
		Name: "bus-counts-no-deliveries", Breaks: "what ends the process is tried for ever",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Retry.MaxAttempts = -1 },
	},
	{
		Name: "bus-drops-unreadable", Breaks: "what cannot be read is skipped",
		backend: func(b backend.Backend) backend.Backend {
			return &sourced{Backend: b, source: func(s backend.Source) backend.Source { return &skipping{s} }}
		},
	},
	{
		Name: "bus-reads-ahead", Breaks: "what a member will need soon waits with it",
		backend: func(b backend.Backend) backend.Backend {
			return &sourced{Backend: b, source: func(s backend.Source) backend.Source { return &hoarding{Source: s} }}
		},
	},
	{
		Name: "bus-takes-all", Breaks: "what a member will need some time is with it, and kept",
		backend: func(b backend.Backend) backend.Backend {
			return &sourced{Backend: b, source: func(s backend.Source) backend.Source { return &hoarding{Source: s, keeps: true} }}
		},
	},
	{
		Name: "bus-blocks-after-death", Breaks: "a key ends with its first dead letter",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			var dead sync.Map
			return func(ctx context.Context, d *eventbus.Delivery) error {
				if _, ok := dead.Load(d.Key); ok && d.Key != "" {
					<-ctx.Done()
					return ctx.Err()
				}
				err := next(ctx, d)
				if err != nil && d.Attempt >= 3 {
					dead.Store(d.Key, true)
				}
				return err
			}
		},
	},
	{
		Name: "bus-ignores-order", Breaks: "events are handled in any order",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Order = eventbus.Unordered },
	},
	{
		Name: "bus-orders-all", Breaks: "every event waits for the one before",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Order, o.Concurrency = eventbus.OrderTotal, 1 },
	},
	{
		Name: "bus-waits-for-ever", Breaks: "a key waits for its head, wherever that is",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			var head atomic.Value
			return func(ctx context.Context, d *eventbus.Delivery) error {
				if h, ok := head.Load().(string); ok && h != d.ID {
					<-ctx.Done()
					return ctx.Err()
				}
				err := next(ctx, d)
				if err != nil {
					head.Store(d.ID)
				}
				return err
			}
		},
	},
	{
		Name: "bus-acks-on-receive", Breaks: "an event is settled when it is handed out",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Ack = eventbus.AckOnReceive },
	},
	{
		Name: "bus-acks-on-success", Breaks: "an event is settled when it is handled",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Ack = eventbus.AckOnSuccess },
	},
	{
		Name: "bus-settles-manual", Breaks: "an event is settled when its handler has returned",
		manual: func(next eventbus.ManualHandler) eventbus.ManualHandler {
			return func(ctx context.Context, d *eventbus.ManualDelivery) error {
				return errors.Join(next(ctx, d), d.Ack(ctx))
			}
		},
	},
	{
		Name: "bus-unbounded", Breaks: "bounds are a hint",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Concurrency, o.MaxInFlight = 2*o.Concurrency, 2*o.MaxInFlight },
	},
}

// wrapped wraps a handler, and replaces each error that the handler returns by change. It
// leaves handlers of dead letters alone.
func wrapped(change func(error) error) func(*Bus, string, eventbus.Handler) eventbus.Handler {
	return func(_ *Bus, topic string, next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			err := next(ctx, d)
			if err == nil || strings.HasSuffix(topic, ".dlq") {
				return err
			}
			return change(err)
		}
	}
}

// sourced is a backend that replaces each source with the result of the function source.
type sourced struct {
	backend.Backend
	source func(backend.Source) backend.Source
}

func (s *sourced) Unwrap() backend.Backend { return s.Backend }

func (s *sourced) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := s.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.source(src), nil
}

// skipping is a source that acknowledges deliveries whose Err is set, and does not return
// them.
type skipping struct{ backend.Source }

func (s *skipping) Unwrap() backend.Source { return s.Source }

func (s *skipping) Receive(ctx context.Context, max int, maxBytes int64) (kept []backend.Delivery, err error) {
	ds, err := s.Source.Receive(ctx, max, maxBytes)
	for _, d := range ds {
		if d.Err == nil {
			kept = append(kept, d)
		} else if err := s.Source.Ack(ctx, []*backend.Delivery{&d}); err != nil {
			return kept, err
		}
	}
	return kept, err
}

// hoarding is a source that receives a hundred messages in one call, and keeps the messages
// beyond the caller's limit for later calls. If keeps is true, it extends the leases of the
// kept messages. If not, these leases may expire, as in a client library that reads ahead.
type hoarding struct {
	backend.Source
	keeps bool

	mu    sync.Mutex
	hoard []backend.Delivery
}

func (h *hoarding) Unwrap() backend.Source { return h.Source }

func (h *hoarding) Receive(ctx context.Context, max int, maxBytes int64) (ds []backend.Delivery, err error) {
	if ds = h.hand(max, nil); len(ds) == 0 {
		ds, err = h.Source.Receive(ctx, 100, maxBytes)
		ds = h.hand(max, ds)
	}
	return ds, err
}

// hand appends read to h.hoard. Then it removes at most max deliveries from h.hoard, and
// returns them.
func (h *hoarding) hand(max int, read []backend.Delivery) (ds []backend.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hoard = append(h.hoard, read...)
	n := min(max, len(h.hoard))
	ds, h.hoard = h.hoard[:n:n], h.hoard[n:]
	return ds
}

func (h *hoarding) Extend(ctx context.Context, ds []*backend.Delivery) error {
	v, _ := backend.As[backend.Extender](h.Source)
	if h.keeps {
		h.mu.Lock()
		waiting := h.hoard
		h.mu.Unlock()
		if err := v.Extend(ctx, backend.Lend(waiting)); err != nil {
			return err
		}
	}
	return v.Extend(ctx, ds)
}
