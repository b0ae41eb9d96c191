package console

import (
	"context"
	"errors"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// The changes of a console are the part that writes. It has a goroutine for each job that runs.
type changes struct {
	backend backend.Backend
	redact  groupstats.Redact
	shared  *shared // results of readings, which a change makes old
	sampler *groupstats.Sampler
	allow   func(*http.Request, Action) error
	name    func(*http.Request) string
	logger  *slog.Logger
	origin  *http.CrossOriginProtection
	tokens  *tokens
	jobs    *jobs
}

// newChanges returns nil if no change is allowed.
func newChanges(b backend.Backend, s *shared, f *groupstats.Sampler, o *Options) *changes {
	if o.Allow == nil {
		return nil
	}
	c := &changes{
		backend: b, redact: o.Redact, shared: s, sampler: f,
		allow: o.Allow, name: o.Who, logger: o.Logger, origin: http.NewCrossOriginProtection(), tokens: newTokens(), jobs: new(jobs),
	}
	if c.name == nil {
		c.name = remoteHost
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	return c
}

// remoteHost returns the address of a visitor without its port.
func remoteHost(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// visitor returns the name of a visitor, which fits into a [backend.Pause].
func (c *changes) visitor(r *http.Request) string {
	name := strings.ToValidUTF8(c.name(r), "?")
	return strings.ToValidUTF8(name[:min(len(name), backend.MaxPauseText)], "")
}

// tell writes a line to the log.
func (c *changes) tell(ctx context.Context, level slog.Level, text, who string, a *Action, more ...slog.Attr) {
	attrs := append([]slog.Attr{slog.String("who", who)}, a.log()...)
	c.logger.LogAttrs(ctx, level, text, append(attrs, more...)...)
}

// mostForm is the most bytes of a form. The payload in it may be three times as long as the event's.
const mostForm = 512 << 10

const formType = "application/x-www-form-urlencoded"

// act answers the forms that change something. It never writes a page: the browser then asks for the
// page of the job, which it may ask for again.
func (c *console) act(w http.ResponseWriter, r *http.Request) {
	if code, text := c.changes.admit(w, r); code != 0 {
		http.Error(w, text, code)
		return
	}
	o, err := orderOf(r.PostForm)
	if err == nil {
		err = c.changes.resolve(o)
	}
	if err != nil {
		c.fail(w, r, "Nothing was changed", err)
		return
	}
	if err := c.allow(r, o.Action); err != nil {
		c.fail(w, r, "Nothing was changed", err)
		return
	}
	j, err := c.changes.begin(r, o)
	if err != nil {
		c.fail(w, r, "Nothing was changed", err)
		return
	}
	select {
	case <-j.done: // most changes are quick, and the page then has their result
	case <-time.After(resultTime):
	case <-r.Context().Done():
	}
	w.Header().Set("Location", jobURL(j.ID)) // http.Redirect would not keep the path before the handler
	w.WriteHeader(http.StatusSeeOther)
}

const resultTime = time.Second

// admit reads a form. It returns the status and the text of a refusal unless a page of this handler
// has sent the form.
func (c *changes) admit(w http.ResponseWriter, r *http.Request) (code int, refusal string) {
	if c.origin.Check(r) != nil {
		return http.StatusForbidden, "another site has sent this form"
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != formType {
		return http.StatusUnsupportedMediaType, "the console takes forms only"
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := r.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return http.StatusRequestEntityTooLarge, "the form is too large"
		}
		return http.StatusBadRequest, "the form cannot be read"
	}
	if !c.tokens.valid(r, r.PostForm.Get("token")) {
		return http.StatusForbidden, "the form is too old, or of another browser: go back, reload the page, and try again"
	}
	return 0, ""
}
