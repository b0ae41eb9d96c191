// Package console shows operators how the topics and groups of a backend are doing, in a browser.
//
//	mux.Handle("/eventbus/", http.StripPrefix("/eventbus", console.Handler(bus.Backend(), console.Options{})))
//
// The pages show which groups are behind or stuck, the events of a topic, the dead letters by their
// class, schedules, retries, and the owners of partitions. They only read. The command "eventbus
// serve" has the same pages.
//
// However many browsers are open, the backend is asked once for the figures, and not at all while
// nobody looks. Each request reads a bounded part of a topic. If the broker does not answer, the
// pages show the last figures, with their time.
//
// The handler asks nobody for a password, and each visitor of the pages can read all events. A program
// that serves them beyond its own machine puts its own sign-in in front of the handler.
package console

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/figures"
	"github.com/seed41896749/eventbus/internal/partition"
)

// Options are the settings of a [Handler]. The zero Options are ready to use. A zero duration is the
// default that its comment names.
type Options struct {
	// Hosts are the names under which browsers may reach the pages, without a port, such as
	// "localhost" and "127.0.0.1". A request for another host is refused. So a foreign page cannot
	// read events by a name that it lets point to this machine (DNS rebinding). Empty: any host.
	Hosts []string

	// Redact removes secrets from an event of a topic before the event is shown, searched or
	// counted. A scheduled event, and an event of a partition, has the topic in which programs publish
	// it. A lifecycle record is an event of the topic with ".lifecycle". Redact may change all fields
	// except Position, and replace the payload. It must not change the bytes of the payload. A dead
	// letter has its error in a header, [eventbus.DeadLetter] names it. Redact is called from several
	// goroutines. If it panics, the event is shown without its fields. Nil: all is shown.
	Redact func(topic string, e *eventbus.Event)

	// TraceURL is the address of a page about a trace, with "{trace_id}" in place of its id, such as
	// "https://tempo.example.com/trace/{trace_id}". The page of an event with a header "traceparent"
	// has this link. Empty: no link.
	TraceURL string

	Behind  time.Duration // the age of the oldest event from which a group is behind; default: 1 minute
	Stuck   time.Duration // the age of the oldest event from which a group can be stuck; default: 5 minutes
	Timeout time.Duration // of one call of the backend; default: 2 seconds
}

// Check returns the [eventbus.FieldError] with which [Handler] would refuse o, or nil.
func (o Options) Check() error {
	if err := checkTraceURL(o.TraceURL); err != nil {
		return &eventbus.FieldError{Field: "console.Options.TraceURL", Reason: err.Error()}
	}
	return nil
}

// A console answers the requests of a [Handler].
type console struct {
	backend   backend.Backend
	redact    figures.Redact
	timeout   time.Duration
	traces    string // the TraceURL of the options
	sampler   *figures.Sampler
	pages     map[string]*template.Template
	version   string // of the assets, for their URLs
	shared    *shared
	journals  *keeper[journal]
	schedules *keeper[schedule]
	owners    *keeper[partition.Roll]
	turns     chan struct{} // has a place for each request that reads events now
}

// Handler returns the pages for b. They have relative links. So the handler can be at any path, if the
// request has this path removed, as [http.StripPrefix] does. The path ends with a slash.
//
// While somebody looks, the handler has a goroutine that asks b for figures. It ends half a minute
// after the last request, and finds only errors if b is closed before. Handler panics if o is wrong,
// see [Options.Check].
func Handler(b backend.Backend, o Options) http.Handler {
	if err := o.Check(); err != nil {
		panic(err)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	c := &console{
		backend: b, redact: o.Redact, timeout: o.Timeout, traces: o.TraceURL, shared: newShared(), turns: make(chan struct{}, readAtOnce),
		sampler:  figures.NewSampler(b, figures.Options{Timeout: o.Timeout, Behind: o.Behind, Stuck: o.Stuck, Redact: o.Redact}),
		pages:    parsePages(),
		journals: newKeeper[journal](), schedules: newKeeper[schedule](), owners: newKeeper[partition.Roll](),
	}
	routes := map[string]http.HandlerFunc{
		"":          c.overview,
		"group":     c.group,
		"topic":     c.topic,
		"event":     c.event,
		"letters":   c.letters,
		"lifecycle": c.lifecycle,
		"schedule":  c.schedule,
	}
	c.version = addAssets(routes)
	return guard(o.Hosts, routes, c.notFound)
}

const (
	defaultTimeout = 2 * time.Second
	readAtOnce     = 4               // requests that read events
	readTime       = 8 * time.Second // for one of them
)

// reading calls f, which reads events, when it is its turn. All requests with the same key share one
// call of f, and for a moment its result.
func reading[T any](ctx context.Context, c *console, key string, f func(context.Context) (T, error)) (T, error) {
	v, err := c.shared.get(ctx, key, func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		select {
		case c.turns <- struct{}{}:
			defer func() { <-c.turns }()
		case <-ctx.Done():
			return nil, fmt.Errorf("too many requests read events now: %w", backend.ErrUnavailable)
		}
		return f(ctx)
	})
	result, _ := v.(T)
	return result, err
}
