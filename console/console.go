// Package console shows operators how the topics and groups of a backend are doing, in a browser.
//
//	mux.Handle("/eventbus/", http.StripPrefix("/eventbus", console.Handler(bus.Backend(), console.Options{})))
//
// The pages show which groups are behind or stuck, the events of a topic, the dead letters by their
// class, schedules, retries, the owners of partitions, and the processes with their settings. The command "eventbus serve" has the same
// pages.
//
// The pages only read, unless [Options].Allow is set. With it, visitors redrive, edit and discard dead
// letters, make an event of a group a dead letter, pause, resume, reset and delete groups, and delete
// topics that no group reads, as far as Allow permits each [Action].
//
// However many browsers are open, the backend is asked once for the figures, and not at all while
// nobody looks. Each request reads a bounded part of a topic. If the broker does not answer, the
// pages show the last figures, with their time.
//
// The handler asks nobody for a password, and each visitor of the pages can read all events. A program
// that serves them beyond its own machine puts its own sign-in in front of the handler.
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

// Options are the settings of a [Handler]. The zero Options are ready to use. A zero duration is the
// default that its comment names.
type Options struct {
	// Hosts are the names under which browsers may reach the pages, without a port, such as
	// "localhost" and "127.0.0.1". A request for another host is refused. So a foreign page cannot
	// read events by a name that it lets point to this machine (DNS rebinding). Empty: any host.
	Hosts []string

	// Redact removes secrets from an event of a topic before the event is shown, searched or
	// counted. A scheduled event, and an event of a partition, has the topic in which programs publish
	// it. A lifecycle record is an event of the topic with ".lifecycle", and a note of a process, which names
	// events that fail, one of [presence.Topic]. Redact may change all fields
	// except Position, and replace the payload. It must not change the bytes of the payload. A dead
	// letter has its error in a header, [eventbus.DeadLetter] names it. With Redact, an event that fails
	// in a member is shown without its ID, key and error, because notes have not all of it. Redact is called from several
	// goroutines, and must give the same result for the same event. If it panics, the event is shown
	// without its fields. Nil: all is shown.
	Redact func(topic string, e *eventbus.Event)

	// Allow decides whether the visitor of a request may do an Action. An error refuses it. The visitor
	// sees that the Action is refused, and not the error, which goes to Logger. Allow is called for each
	// button of a page, with Action.DryRun, and again before the change. It must not block, is called
	// from several goroutines, and must not read the body of the request. Nil: the pages only read.
	Allow func(*http.Request, Action) error

	// The name of a visitor, for the log, for other visitors and for the pause of a group. It is cut
	// after 256 bytes. The function is called from several goroutines. Default: the remote address.
	Who func(*http.Request) string

	// Logger gets a line when a change begins, when it ends, and when Allow has refused one.
	// Default: slog.Default().
	Logger *slog.Logger

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
	*reader
	traces   string // the TraceURL of the options
	sampler  *groupstats.Sampler
	pages    map[string]*template.Template
	version  string    // of the assets, for their URLs
	executor *executor // nil: the console only reads
}

// Handler returns the pages for b. They have relative links. So the handler can be at any path, if the
// request has this path removed, as [http.StripPrefix] does. The path ends with a slash.
//
// While somebody looks, the handler has a goroutine that asks b for figures. It ends half a minute
// after the last request, and finds only errors if b is closed before. A change has a goroutine of its
// own, which ends with the change, after 12 hours at the latest, and soon after b is closed. Handler
// panics if o is wrong, see [Options.Check].
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
