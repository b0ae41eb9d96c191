package eventbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/observer"
)

// A Bus publishes events and subscribes handlers through one backend. Its methods are safe for
// concurrent use. A bus without subscriptions and without a Publish in progress runs no
// goroutines of its own.
type Bus struct {
	engine   *engine.Engine
	options  Options
	typed    typedMembers
	later    *later.Client // scheduled events
	publish  Publisher     // storeCopies wrapped in Options.PublishMiddleware; nil without middleware
	down     chan struct{} // closed when a Shutdown has ended
	markDown func()        // closes down, once
}

var (
	_ Publisher        = (*Bus)(nil)
	_ Subscriber       = (*Bus)(nil)
	_ ManualSubscriber = (*Bus)(nil)
)

// New returns a bus on b. The bus owns b, so [Bus.Shutdown] closes it. If b is nil or New refuses
// o, the error is a *FieldError, and New does not close b.
func New(b backend.Backend, o Options) (*Bus, error) {
	o = o.Effective()
	if b == nil {
		return nil, &FieldError{Field: "backend", Reason: "is nil"}
	}
	if err := o.check(backend.LimitsOf(b)); err != nil {
		return nil, err
	}
	if err := o.checkPartitions(b); err != nil {
		return nil, err
	}
	bus := &Bus{options: o, down: make(chan struct{})}
	bus.markDown = sync.OnceFunc(func() { close(bus.down) })
	if len(o.PublishMiddleware) > 0 {
		var err error
		if bus.publish, err = o.wrapPublisher(PublisherFunc(func(ctx context.Context, topic string, events ...*Event) error {
			return storeCopies(ctx, bus, topic, events)
		})); err != nil {
			return nil, err
		}
	}
	bus.engine = engine.New(b, engine.Options{
		Observer:   o.Observer,
		Instance:   o.Instance,
		Program:    o.Process(),
		Topics:     o.topics(),
		Partitions: o.partitions(),
		Publish: engine.PublishOptions{
			Timeout:         max(o.PublishTimeout, 0),
			MaxPending:      o.MaxPending,
			MaxPendingBytes: o.MaxPendingBytes,
			WhenFull:        whenFull[o.WhenFull],
		},
	})
	bus.later = later.NewClient(b, bus.engine.Publish)
	return bus, nil
}

// Open returns a bus on the backend that rawURL names, such as "mem:" or
// "redis://localhost:6379". It uses the first of drivers that serves the scheme of the URL. List
// one driver for each kind of backend that the program should support: the URL then chooses among
// them. Open also declares o.Topics.
//
// ctx and o.OpenTimeout bound Open, not the bus. Errors never show the URL, because it may
// contain a password.
func Open(ctx context.Context, rawURL string, o Options, drivers ...backend.Driver) (*Bus, error) {
	if isHostPort(rawURL) {
		return nil, &FieldError{Field: "url", Reason: "has no scheme, such as redis: in redis://HOST:PORT"}
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, &FieldError{Field: "url", Reason: "cannot be parsed: " + parseReason(err) + passwordHint(rawURL)}
	}
	if u.Scheme == "" {
		return nil, &FieldError{Field: "url", Reason: "has no scheme, such as mem:"}
	}
	d, err := driverFor(u.Scheme, drivers)
	if err != nil {
		return nil, err
	}
	if o.OpenTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.OpenTimeout)
		defer cancel()
	}
	var b backend.Backend
	err = retryOpen(ctx, o, func() (err error) { b, err = d.Open(ctx, u); return err })
	if err != nil {
		return nil, &Error{Op: "open " + u.Scheme, Err: err}
	}
	bus, err := New(b, o)
	if err != nil {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
		return nil, err
	}
	if err := retryOpen(ctx, o, func() error { return bus.engine.Declare(ctx) }); err != nil {
		return nil, errors.Join(&Error{Op: "open " + u.Scheme, Err: err}, bus.Shutdown(context.WithoutCancel(ctx)))
	}
	return bus, nil
}

// Run blocks until ctx ends or a subscription fails for good. It then calls [Bus.Shutdown],
// bounded by Options.DrainTimeout, and returns. The end of ctx is not an error, so a program
// usually ends with
//
//	return bus.Run(ctx)
//
// where ctx comes from [os/signal.NotifyContext]. Run also returns after another goroutine has
// called Shutdown, with the error of that Shutdown.
func (b *Bus) Run(ctx context.Context) error {
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-b.engine.Failed():
	case <-b.down:
	}
	drain, cancel := drainContext(ctx, b)
	defer cancel()
	return errors.Join(failed, b.Shutdown(drain))
}

// A Server answers requests of other programs. A *[net/http.Server] is one.
type Server interface {
	// ListenAndServe serves until Shutdown is called. It returns earlier only if it fails.
	ListenAndServe() error

	// Shutdown stops accepting requests and waits for those in flight, at most until ctx ends.
	Shutdown(ctx context.Context) error
}

// Serve runs servers together with the bus, for a program that also answers requests. It blocks
// until ctx ends, a subscription fails for good, or a server fails. It then shuts down the
// servers first and the bus second, because requests in flight may still publish.
// Options.DrainTimeout bounds each of the two steps.
//
// Serve returns the first failure, joined with the errors of the shutdowns. The end of ctx, which
// usually comes from [os/signal.NotifyContext], is not an error.
func (b *Bus) Serve(ctx context.Context, servers ...Server) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ran, served := make(chan error, 1), make(chan error, len(servers))
	go func() { ran <- b.Run(running) }()
	for _, s := range servers {
		go func() { served <- s.ListenAndServe() }()
	}
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
	case failed = <-ran: // a subscription has failed for good, or the bus was shut down
		ran <- nil
	}
	failed = errors.Join(failed, shutdownServers(ctx, b, servers))
	stop()
	return errors.Join(failed, <-ran)
}

// Shutdown drains every subscription, then stops publishing, then closes the backend.
//
// A subscription that drains receives no more events. It gives back the events whose handlers
// have not started, waits for the handlers that are running, and settles their events. Handlers
// may publish until they return. If ctx ends first, Shutdown cancels the handlers with cause
// ErrShutdown and waits one more second. It then returns a *DrainError with the number of events
// that are still held.
//
// A later call waits for the first one, at most until its own ctx ends. A handler cannot shut
// down its own bus, because Shutdown would wait for that handler. If ctx is the context of a
// running handler of the bus, Shutdown returns ErrInHandler at once.
func (b *Bus) Shutdown(ctx context.Context) error {
	if slices.ContainsFunc(b.engine.Subscriptions(), func(s *engine.Subscription) bool { return s.Running(ctx) }) {
		return ErrInHandler
	}
	defer b.markDown()
	return drainError(b.engine.Shutdown(ctx))
}

// Ready returns nil if the backend answers and no subscription has a lasting failure. It suits a
// readiness probe.
//
// A lasting failure is one of these: reads fail, a settlement has been failing for longer than a
// lease, dead letters cannot be stored, all handlers are stuck, or the subscription has failed
// for good. The error lists the current failures by topic and group, in a stable order. A
// subscription that is paused, limited or draining is not a failure.
func (b *Bus) Ready(ctx context.Context) error {
	if err := b.engine.Ready(ctx); err != nil {
		return &Error{Op: "ready", Err: err}
	}
	return nil
}

// Subscriptions lists the subscriptions of the bus, sorted by topic and group. A subscription
// leaves the list when its Drain has ended. Once Shutdown has been called the list is empty, even
// while subscriptions are still draining.
func (b *Bus) Subscriptions() []*Subscription {
	list := b.engine.Subscriptions()
	slices.SortStableFunc(list, func(x, y *engine.Subscription) int {
		return cmp.Or(strings.Compare(x.Topic, y.Topic), strings.Compare(x.Group, y.Group))
	})
	subscriptions := make([]*Subscription, len(list))
	for i, s := range list {
		subscriptions[i] = &Subscription{s: s}
	}
	return subscriptions
}

// Dropped returns the number of events that Publish has dropped since the bus was made; see
// Options.WhenFull.
func (b *Bus) Dropped() int64 { return b.engine.Dropped() }

// Backend returns the backend given to New. Use it with [backend.As] and the functions of package
// backend, for example to read a topic or reset a group.
func (b *Bus) Backend() backend.Backend { return b.engine.Backend() }

// Options configure a [Bus]. The zero value is ready to use: each zero field means its default.
type Options struct {
	// Service names the program. It becomes the Source of events that have none, so it should be
	// a URI reference, such as "shop" or "https://shop.example/eu". Default: the name of the
	// executable.
	Service string

	// Instance is a name for this process that survives restarts, such as the name of a pod in a
	// StatefulSet. No two running processes may have the same Instance. It follows the rules for
	// group names; see [backend.CheckName]. Default: none.
	//
	// Set it to recover quickly from a crash: when the restarted process subscribes to a group,
	// it immediately gets back, in order, the events that it held before the crash. Without an
	// Instance those events wait until their leases have expired, and later events of their keys
	// are handled before them.
	//
	// If the earlier process is still running after all, its subscriptions to the group fail for
	// good with ErrReplaced, and the contexts of their handlers end. New refuses Instance if the
	// backend does not have Limits.Instances.
	Instance string

	// Observer is notified of what happens on the bus. The zero Observer means
	// observer.Slog(nil), which logs failures with slog's default logger.
	Observer observer.Observer

	// Middleware wraps every handler. The first one is outermost.
	Middleware []Middleware

	// PublishMiddleware wraps Publish and its variants, such as PublishReceipts and PublishAt.
	// The first one is outermost.
	PublishMiddleware []PublishMiddleware

	// ErrorClasses name the errors that handlers return, for use in Retry.Rules and in dead
	// letters. An error belongs to the first class that matches it. If none matches, its class is
	// "panic", "timeout", the result of the error's method ErrorType() string, or the Go type of
	// the innermost error. If the handler did not run, the class is the Reason.
	ErrorClasses []ErrorClass

	// Topics are settings of topics, by name. Open declares these topics. A bus made by New
	// declares each of them when it first publishes or subscribes to it.
	Topics map[string]TopicOptions

	// Timeout is the default of SubscribeOptions.Timeout. Default 1 minute; negative means no
	// timeout.
	Timeout time.Duration

	// PublishTimeout bounds each Publish, including retries, in addition to its context. Default
	// 30 s; negative means no limit.
	PublishTimeout time.Duration

	// OpenTimeout is how long Open waits for a broker that does not answer yet. Open then tries
	// again every second, and reports each failure to Observer.Failed. Default: Open does not
	// wait, but fails at once.
	OpenTimeout time.Duration

	// DrainTimeout bounds the Shutdown at the end of Run and Serve. Default 25 s; negative
	// means no limit.
	DrainTimeout time.Duration

	// Dedup makes a topic store only one event with a given ID while the backend remembers that
	// ID (Limits.OnceWindow). Within this window you can repeat a Publish safely, as long as the
	// events have IDs: either your own, or those of the first call, from Receipt.ID. With Dedup
	// the bus itself also repeats a Publish of unknown outcome. New refuses Dedup if the backend
	// does not remember IDs.
	Dedup bool

	// MaxPayload is the size of the largest Payload that Publish accepts, in bytes, at least 1.
	// New refuses a value above the backend's Limits.Payload less 64 KiB, which are reserved for
	// headers. If you raise it, raise SubscribeOptions.MaxReceive and MaxBytes too. Default: the
	// constant MaxPayload, which every backend can store.
	MaxPayload int

	// MaxPending and MaxPendingBytes limit the events of all Publish calls in progress. A call
	// that exceeds a limit by itself is accepted only while no other call is in progress.
	// Defaults: 10,000 events and 64 MiB.
	MaxPending      int
	MaxPendingBytes int

	// WhenFull says what Publish does when MaxPending or MaxPendingBytes is reached. Default
	// WaitWhenFull.
	WhenFull WhenFull
}

// Effective returns o with every zero field replaced by its default, as New does.
func (o Options) Effective() Options {
	if o.Observer.IsZero() {
		o.Observer = observer.Slog(nil)
	}
	setDefault(&o.Service, programName())
	setDefault(&o.Timeout, time.Minute)
	setDefault(&o.PublishTimeout, 30*time.Second)
	setDefault(&o.OpenTimeout, -1)
	setDefault(&o.DrainTimeout, 25*time.Second)
	setDefault(&o.MaxPayload, MaxPayload)
	setDefault(&o.MaxPending, 10_000)
	setDefault(&o.MaxPendingBytes, 64<<20)
	return o
}

func (o Options) check(l backend.Limits) error {
	switch {
	case o.MaxPayload < 0:
		return &FieldError{Field: "Options.MaxPayload", Reason: "is negative"}
	case l.Payload > 0 && o.MaxPayload > max(l.Payload-headerRoom, MaxPayload):
		return &FieldError{Field: "Options.MaxPayload", Reason: fmt.Sprintf("is %d bytes, but the backend accepts at most %d", o.MaxPayload, l.Payload-headerRoom)}
	case o.MaxPending < 0:
		return &FieldError{Field: "Options.MaxPending", Reason: "is negative"}
	case o.WhenFull > DropOldest:
		return &FieldError{Field: "Options.WhenFull", Reason: fmt.Sprintf("is %d, which is not a WhenFull", o.WhenFull)}
	case o.MaxPendingBytes < 0:
		return &FieldError{Field: "Options.MaxPendingBytes", Reason: "is negative"}
	case o.Dedup && l.OnceWindow == 0:
		return &FieldError{
			Field: "Options.Dedup", Reason: "is set, but the backend does not remember IDs",
			Err: errors.ErrUnsupported,
		}
	case o.Instance != "" && backend.CheckName(o.Instance) != nil:
		return &FieldError{Field: "Options.Instance", Reason: backend.CheckName(o.Instance).Error()}
	case o.Instance != "" && !l.Instances:
		return &FieldError{
			Field: "Options.Instance", Reason: "is set, but the backend cannot replace the members of an earlier incarnation",
			Err: errors.ErrUnsupported,
		}
	case len(o.Service) > maxText:
		return &FieldError{Field: "Options.Service", Reason: "is longer than 512 bytes", Err: ErrTooLarge}
	}
	for i, m := range o.Middleware {
		if m == nil {
			return &FieldError{Field: fmt.Sprintf("Options.Middleware[%d]", i), Reason: "is nil"}
		}
	}
	for i, m := range o.PublishMiddleware {
		if m == nil {
			return &FieldError{Field: fmt.Sprintf("Options.PublishMiddleware[%d]", i), Reason: "is nil"}
		}
	}
	if err := o.checkTopics(l); err != nil {
		return err
	}
	if err := checkClasses(o.ErrorClasses); err != nil {
		return err
	}
	return checkText("Options.Service", o.Service)
}

// Process returns the name under which operators see this process: the Instance if there is one,
// otherwise the service, the host name and the process ID.
func (o Options) Process() string {
	if o.Instance != "" {
		return o.Instance
	}
	host, _ := os.Hostname() // without a name the process ID must do
	service := cmp.Or(o.Service, programName())
	return fmt.Sprintf("%s@%s/%d", service[:min(len(service), maxText/4)], host, os.Getpid())
}

// programName returns the name of the executable as a URI reference.
func programName() string {
	name := "unknown"
	if len(os.Args) > 0 && os.Args[0] != "" {
		name = strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	}
	return (&url.URL{Path: name[:min(len(name), maxText/4)]}).String() // escaping makes it at most three times as long
}

// setDefault sets v to value if v is zero.
func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// shutdownServers shuts all servers down at the same time.
func shutdownServers(ctx context.Context, b *Bus, servers []Server) error {
	drain, cancel := drainContext(ctx, b)
	defer cancel()
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.Shutdown(drain) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// drainContext returns a context with the values of ctx that ends after DrainTimeout.
func drainContext(ctx context.Context, b *Bus) (context.Context, context.CancelFunc) {
	drain := context.WithoutCancel(ctx)
	if b.options.DrainTimeout > 0 {
		return context.WithTimeout(drain, b.options.DrainTimeout)
	}
	return drain, func() {}
}

// isHostPort reports whether s looks like localhost:6379. [url.Parse] would take the host for a
// scheme.
func isHostPort(s string) bool {
	host, port, ok := strings.Cut(s, ":")
	_, err := strconv.ParseUint(port, 10, 16)
	return ok && err == nil && host != "" && !strings.ContainsAny(host, "/@?#")
}

// retryOpen calls f. If there is an OpenTimeout and the broker is unavailable, it calls f again
// every second until ctx is done.
func retryOpen(ctx context.Context, o Options, f func() error) error {
	failed := o.Effective().Observer.Failed
	for again := time.NewTicker(time.Second); ; {
		err := f()
		if err == nil || o.OpenTimeout <= 0 || !errors.Is(err, backend.ErrUnavailable) || ctx.Err() != nil {
			again.Stop()
			return err
		}
		if failed != nil {
			failed(observer.Failed{Scope: observer.Open, Err: err})
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return err
		}
	}
}

// parseReason returns the reason from an error of url.Parse, without the URL, which may contain a
// password.
func parseReason(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	for _, known := range []string{"invalid port", "invalid userinfo", "invalid control character", "missing protocol scheme", "invalid URL escape", "first path segment"} {
		if strings.Contains(err.Error(), known) {
			return known
		}
	}
	return "not a URL"
}

// passwordHint explains how to escape a password if the host of rawURL seems to end inside one,
// at an unescaped character.
func passwordHint(rawURL string) string {
	_, rest, _ := strings.Cut(rawURL, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 || strings.Contains(rest[:end], "@") || !strings.Contains(rest[end:], "@") {
		return ""
	}
	return "; in a password / is written %2F, ? is written %3F, and # is written %23"
}

// knownDrivers maps the URL schemes of this module's drivers to their packages, so that the error
// for a missing driver can name it.
var knownDrivers = map[string]string{
	"mem":   "inmemory",
	"bolt":  "bolt",
	"redis": "redisstream", "rediss": "redisstream", "unix": "redisstream",
	"redis+sentinel": "redisstream", "redis+cluster": "redisstream",
	"nats": "nats", "tls": "nats",
}

func driverFor(scheme string, drivers []backend.Driver) (backend.Driver, error) {
	if i := slices.Index(drivers, nil); i >= 0 {
		return nil, &FieldError{Field: fmt.Sprintf("drivers[%d]", i), Reason: "is nil"}
	}
	var known []string
	for _, d := range drivers {
		for _, s := range d.Schemes() {
			if s == scheme {
				return d, nil
			}
			known = append(known, s)
		}
	}
	reason := fmt.Sprintf("has the scheme %q, which no driver given to Open serves", scheme)
	if len(drivers) == 0 {
		reason = fmt.Sprintf("has the scheme %q, and no driver was given", scheme)
	}
	switch pkg := knownDrivers[scheme]; {
	case pkg != "":
		reason += ": add " + pkg + ".Driver{}"
	case len(known) > 0:
		reason += cmp.Or(nearest.Hint("%s:", scheme, known), "; served: "+strings.Join(known, ", "))
	}
	return nil, &FieldError{Field: "url", Reason: reason, Err: errors.ErrUnsupported}
}
