package console

import (
	"context"
	"crypto/rand"
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

// An executor carries out the changes that visitors request. It is the only part of a console that
// writes, and has a goroutine for each running job.
type executor struct {
	backend backend.Backend
	redact  groupstats.Redact
	cache   *resultCache // cached reads, which a change invalidates
	sampler *groupstats.Sampler
	allow   func(*http.Request, Action) error
	name    func(*http.Request) string
	logger  *slog.Logger
	origin  *http.CrossOriginProtection
	tokens  *tokens
	jobs    *jobRegistry
}

// newExecutor returns nil if no change is allowed.
func newExecutor(b backend.Backend, s *resultCache, f *groupstats.Sampler, o *Options) *executor {
	if o.Allow == nil {
		return nil
	}
	x := &executor{
		backend: b, redact: o.Redact, cache: s, sampler: f,
		allow: o.Allow, name: o.Who, logger: o.Logger, origin: http.NewCrossOriginProtection(), tokens: newTokens(), jobs: new(jobRegistry),
	}
	if x.name == nil {
		x.name = remoteHost
	}
	if x.logger == nil {
		x.logger = slog.Default()
	}
	return x
}

// remoteHost returns the address of a visitor without its port.
func remoteHost(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// visitor returns the name of a visitor, which fits into a [backend.Pause].
func (x *executor) visitor(r *http.Request) string {
	name := strings.ToValidUTF8(x.name(r), "?")
	return strings.ToValidUTF8(name[:min(len(name), backend.MaxPauseText)], "")
}

// logAction writes a line to the log.
func (x *executor) logAction(ctx context.Context, level slog.Level, text, who string, a *Action, more ...slog.Attr) {
	attrs := append([]slog.Attr{slog.String("who", who)}, a.logAttrs()...)
	x.logger.LogAttrs(ctx, level, text, append(attrs, more...)...)
}

// maxForm is the most bytes of a form. The payload in it may be three times as long as the event's.
const maxForm = 512 << 10

const formType = "application/x-www-form-urlencoded"

// act answers the forms that change something. It never writes a page: the browser then asks for the
// page of the job, which it may ask for again.
func (c *console) act(w http.ResponseWriter, r *http.Request) {
	if code, text := c.executor.checkRequest(w, r); code != 0 {
		http.Error(w, text, code)
		return
	}
	form, err := parseForm(r.PostForm)
	if err == nil {
		err = c.executor.resolveStop(form)
	}
	if err != nil {
		c.fail(w, r, "Nothing was changed", err)
		return
	}
	if err := c.allow(r, form.Action); err != nil {
		c.fail(w, r, "Nothing was changed", err)
		return
	}
	j, err := c.executor.begin(r, form)
	if err != nil {
		c.fail(w, r, "Nothing was changed", err)
		return
	}
	select {
	case <-j.done: // most changes are quick, and the page then has their result
	case <-time.After(resultWait):
	case <-r.Context().Done():
	}
	w.Header().Set("Location", jobURL(j.ID)) // http.Redirect would not keep the path before the handler
	w.WriteHeader(http.StatusSeeOther)
}

const resultWait = time.Second

// checkRequest reads a form. It returns the status and the text of a refusal unless a page of this handler
// has sent the form.
func (x *executor) checkRequest(w http.ResponseWriter, r *http.Request) (code int, refusal string) {
	if x.origin.Check(r) != nil {
		return http.StatusForbidden, "this form was sent by another site"
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != formType {
		return http.StatusUnsupportedMediaType, "the console accepts only forms"
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return http.StatusRequestEntityTooLarge, "the form is too large"
		}
		return http.StatusBadRequest, "the form cannot be read"
	}
	if !x.tokens.valid(r, r.PostForm.Get("token")) {
		return http.StatusForbidden, "the form is too old or belongs to another browser: go back, reload the page, and try again"
	}
	return 0, ""
}

// begin starts the change of a form, and returns its job.
func (x *executor) begin(r *http.Request, form *changeForm) (*job, error) {
	who := x.visitor(r)
	if form.Verb == Stop {
		j := x.jobs.find(form.job)
		if j == nil {
			return nil, errNotFound
		}
		x.logAction(r.Context(), slog.LevelInfo, "console: stop", who, &form.Action)
		j.stop(stoppedError{who})
		return j, nil
	}
	if err := x.supports(form.Verb); err != nil {
		return nil, err
	}
	form.pause.By, form.who = who, who
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), jobTimeout, errTooLong)
	ctx, stop := context.WithCancelCause(ctx)
	now := time.Now()
	j := &job{
		ID: rand.Text(), Who: who, Action: form.Action, Found: form.found, Rate: form.rate, Began: now, source: form.sourceTopic(), moved: now,
		done: make(chan struct{}), stop: stop,
	}
	if err := x.jobs.add(j); err != nil {
		cancel()
		return nil, err
	}
	x.logAction(ctx, slog.LevelInfo, "console: begin", who, &form.Action)
	go func() {
		defer close(j.done)
		defer cancel()
		j.run(ctx, func(ctx context.Context) (string, error) { return x.change(ctx, j, form) })
		x.cache.drop()
		if form.Verb.onLetters() {
			x.sampler.Changed(form.Topic)
		}
		x.logEnd(ctx, j)
	}()
	return j, nil
}

// logEnd writes the end of a job to the log.
func (x *executor) logEnd(ctx context.Context, j *job) {
	s := j.State()
	more := []slog.Attr{slog.Int("done", s.Done), slog.Duration("took", s.Ended.Sub(j.Began))}
	if s.Left != "" {
		more = append(more, slog.String("left", s.Left))
	}
	if s.Err != nil {
		x.logAction(ctx, slog.LevelError, "console: failed", j.Who, &j.Action, append(more, slog.Any("error", s.Err))...)
		return
	}
	x.logAction(ctx, slog.LevelInfo, "console: end", j.Who, &j.Action, append(more, slog.String("result", s.Result))...)
}

// change carries out the change of a form.
func (x *executor) change(ctx context.Context, j *job, form *changeForm) (string, error) {
	switch {
	case form.Verb == Bury:
		return x.bury(ctx, j, form)
	case form.Verb == DeleteTopic:
		return x.deleteTopic(ctx, j, form)
	case form.Verb.onGroup():
		return x.changeGroup(ctx, j, form)
	}
	return x.changeLetters(ctx, j, form)
}

// resolveStop sets the Action of a form that stops a job: the job's Action with the Verb Stop.
func (x *executor) resolveStop(form *changeForm) error {
	if form.Verb != Stop {
		return nil
	}
	j := x.jobs.find(form.job)
	if j == nil {
		return errNotFound
	}
	form.Action = j.Action
	form.Verb = Stop
	return nil
}
