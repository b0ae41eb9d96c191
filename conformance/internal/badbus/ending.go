package badbus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// ending has the saboteurs that break promises about the end of runs, subscriptions and buses.
var ending = []Saboteur{
	{
		Name: "bus-swallows-panics", Breaks: "a handler that panics is done",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) (err error) {
				defer func() { _ = recover() }()
				return next(ctx, d)
			}
		},
	},
	{
		Name: "bus-swallows-goexit", Breaks: "a handler that ends its goroutine is done",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) (err error) {
				var wg sync.WaitGroup
				wg.Go(func() { err = next(ctx, d) })
				wg.Wait()
				return err
			}
		},
	},
	{
		Name: "bus-keeps-on-drain", Breaks: "what a drain leaves comes back when its lease has passed",
		backend: func(b backend.Backend) backend.Backend {
			return &sourced{Backend: b, source: func(s backend.Source) backend.Source { return &keeping{s} }}
		},
	},
	{
		Name: "bus-reports-nothing", Breaks: "a Shutdown succeeds",
		shutdown: func(b *Bus, ctx context.Context) error {
			_ = b.good.Shutdown(ctx)
			return nil
		},
	},
	{
		Name: "bus-drains-for-ever", Breaks: "a Shutdown waits as long as it must",
		shutdown: func(b *Bus, ctx context.Context) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer cancel()
			return b.good.Shutdown(ctx)
		},
	},
	{
		Name: "bus-never-closes", Breaks: "a Shutdown is a wish",
		shutdown: func(*Bus, context.Context) error { return nil },
	},
	{
		Name: "bus-closes-publishing-first", Breaks: "a Shutdown ends publishing at once",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			if b.shut.Load() {
				return nil, eventbus.ErrClosed
			}
			return b.good.PublishReceipts(ctx, topic, events...)
		},
		shutdown: func(b *Bus, ctx context.Context) error {
			b.shut.Store(true)
			return b.good.Shutdown(ctx)
		},
	},
	{
		Name: "bus-reads-on", Breaks: "a read that has begun goes on for a while",
		backend: func(b backend.Backend) backend.Backend {
			return &sourced{Backend: b, source: func(s backend.Source) backend.Source { return &lasting{s} }}
		},
	},
	{
		Name: "bus-gives-up-on-brokers", Breaks: "a subscription lives as long as its connection",
		backend: func(b backend.Backend) backend.Backend {
			return &sourced{Backend: b, source: func(s backend.Source) backend.Source { return &leaving{Source: s} }}
		},
	},
	{
		Name: "bus-always-ready", Breaks: "a bus that was made is ready",
		ready: func() error { return nil },
	},
	{
		Name: "bus-never-ready", Breaks: "one can never be sure",
		ready: func() error { return errors.New("not sure") },
	},
	{
		Name: "bus-ends-when-gone", Breaks: "a subscription lives as long as its group",
		backend: func(b backend.Backend) backend.Backend { return &attachingOnce{Backend: b, seen: map[string]bool{}} },
	},
}

// leaving is a source that receives nothing more after the first error.
type leaving struct {
	backend.Source
	left atomic.Bool
}

func (l *leaving) Unwrap() backend.Source { return l.Source }

func (l *leaving) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	if l.left.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ds, err := l.Source.Receive(ctx, max, maxBytes)
	if err != nil && ctx.Err() == nil {
		l.left.Store(true)
	}
	return ds, err
}

// keeping is a source that ignores Delay, so that no delivery is given back.
type keeping struct{ backend.Source }

func (k *keeping) Unwrap() backend.Source { return k.Source }

func (k *keeping) Delay(context.Context, []backend.Delayed) error { return nil }

// lasting is a source whose Receive continues for five minutes after its context is done.
type lasting struct{ backend.Source }

func (l *lasting) Unwrap() backend.Source { return l.Source }

func (l *lasting) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	on, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(5*time.Minute, cancel) })
	defer stop()
	for {
		if ds, err := l.Source.Receive(on, max, maxBytes); len(ds) > 0 || err != nil {
			return ds, err
		}
	}
}

// attachingOnce is a backend that refuses a second Attach to the same group.
type attachingOnce struct {
	backend.Backend
	mu   sync.Mutex
	seen map[string]bool
}

func (a *attachingOnce) Unwrap() backend.Backend { return a.Backend }

func (a *attachingOnce) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	a.mu.Lock()
	again := a.seen[c.Topic+"/"+c.Group]
	a.seen[c.Topic+"/"+c.Group] = true
	a.mu.Unlock()
	if again {
		return nil, fmt.Errorf("not twice: %w", errors.Join(backend.ErrUnavailable))
	}
	return a.Backend.Attach(ctx, c)
}
