// Package console shows operators how the topics and groups of a backend are doing, in a browser.
//
//	mux.Handle("/eventbus/", http.StripPrefix("/eventbus", console.Handler(bus.Backend(), console.Options{})))
//
// The pages show which groups are behind or stuck, the events of a topic, dead letters by class,
// schedules, retries, partition owners, and processes with their settings. The command "eventbus
// serve" has the same pages.
//
// The pages are read-only unless you set [Options].Allow. Visitors can then redrive, edit and discard
// dead letters, move an event of a group to the dead letters, pause, resume, reset and delete groups,
// and delete topics that no group reads, as far as Allow permits each [Action].
//
// However many browsers are open, the backend is polled only once, and not at all while nobody is
// looking. Each request reads a bounded part of a topic. If the broker does not respond, the pages
// show the last known numbers with their time.
//
// The handler has no sign-in, and every visitor can read all events. If you serve the pages beyond
// your own machine, put your own sign-in in front of the handler.
package console

import (
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// Options are the settings of a [Handler]. The zero value is ready to use; a zero duration means the
// default in its comment.
type Options struct {
	// Hosts are the host names that the pages are served under, without a port, such as "localhost"
	// and "127.0.0.1". Requests for other hosts are refused, so that a hostile site cannot read events
	// through a name that it points to this machine (DNS rebinding). Empty means any host.
	Hosts []string

	// Redact removes secrets from an event of a topic before the event is shown, searched or counted.
	// For scheduled events and events of a partition, topic is the one that programs publish to.
	// Lifecycle records are events of the topic with the suffix ".lifecycle", and the heartbeats of
	// processes, which name failing events, are events of [presence.Topic]. The error of a dead letter
	// is in a header; see [eventbus.DeadLetter].
	//
	// Redact may change all fields except Position, and may replace the payload but not modify its
	// bytes. It is called concurrently, and must give the same result for the same event. If it panics,
	// the event is shown without its fields. With Redact, failing events are shown without ID, key and
	// error, because heartbeats do not contain the whole event. If Redact is nil, everything
	// is shown.
	Redact func(topic string, e *eventbus.Event)

	// Allow decides whether the visitor who sent a request may perform an Action; an error refuses it.
	// The visitor only sees that the Action is refused, and the error goes to Logger. Allow is called
	// for each button of a page, with Action.DryRun set, and again before the change. It is called
	// concurrently, must not block, and must not read the request body. If Allow is nil, the pages
	// are read-only.
	Allow func(*http.Request, Action) error

	// Who returns the name of a visitor, for the log, for other visitors, and for the pause of a group.
	// Names are cut to 256 bytes. It is called concurrently. Default: the remote address.
	Who func(*http.Request) string

	// Logger gets a line when a change begins, when it ends, and when Allow refuses one.
	// Default: slog.Default().
	Logger *slog.Logger

	// TraceURL is the address of your tracing UI, with "{trace_id}" in place of the trace ID, such as
	// "https://tempo.example.com/trace/{trace_id}". Pages of events with a "traceparent" header link to
	// it. Empty means no link.
	TraceURL string

	Behind  time.Duration // a group is behind when its oldest event has this age; default: 1 minute
	Stuck   time.Duration // a group can be stuck when its oldest event has this age; default: 5 minutes
	Timeout time.Duration // for a single backend call; default: 2 seconds
}

// Check returns the [eventbus.FieldError] that [Handler] would panic with, or nil.
func (o Options) Check() error {
	if err := checkTraceURL(o.TraceURL); err != nil {
		return &eventbus.FieldError{Field: "console.Options.TraceURL", Reason: err.Error()}
	}
	return nil
}

// A console answers the requests of a [Handler].
type console struct {
	*reader
	traces   string // the TraceURL of the options
	sampler  *groupstats.Sampler
	pages    map[string]*template.Template
	version  string    // of the assets, for their URLs
	executor *executor // nil: the console only reads
}

// Handler returns the pages for b. All links are relative, so you can mount the handler at any path
// that ends with a slash, if you remove the path from requests as [http.StripPrefix] does.
//
// While somebody is looking, the handler has a goroutine that polls b. It ends half a minute after the
// last request; if you close b before, it only sees errors. Every change has its own goroutine, which
// ends with the change, soon after b is closed, and after 12 hours at the latest. Handler panics if o
// is invalid; see [Options.Check].
func Handler(b backend.Backend, o Options) http.Handler {
	if err := o.Check(); err != nil {
		panic(err)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	c := &console{
		reader: newReader(b, &o), traces: o.TraceURL, pages: parsePages(),
		sampler: groupstats.NewSampler(b, groupstats.Options{Timeout: o.Timeout, Behind: o.Behind, Stuck: o.Stuck, Redact: o.Redact}),
	}
	c.executor = newExecutor(b, c.cache, c.sampler, &o)
	routes := map[string]http.HandlerFunc{
		"":          c.overview,
		"group":     c.group,
		"topic":     c.topic,
		"event":     c.event,
		"letters":   c.letters,
		"lifecycle": c.lifecycle,
		"processes": c.processes,
		"schedule":  c.schedule,
	}
	c.version = addAssets(routes)
	forms := map[string]http.HandlerFunc{}
	if c.executor != nil {
		routes["confirm"], routes["edit"], routes["job"], routes["jobs"] = c.confirm, c.editForm, c.job, c.jobList
		forms["act"] = c.act
	}
	return guard(o.Hosts, routes, forms, c.notFound)
}

const defaultTimeout = 2 * time.Second
