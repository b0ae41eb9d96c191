package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Jobs are the changes that run, and for a while the ones that have ended. They live in this process: a
// restart forgets them, and the letters that they have not reached stay.
type jobs struct {
	mu  sync.Mutex
	all []*job // the oldest first
}

const (
	mostRunning = 8
	mostEnded   = 100
	shownFor    = time.Hour // after the end
)

// errBusy is the class of errors of a change that may begin later.
var errBusy = errors.New("nothing was begun")

// busy returns an error if a job changes any number of letters of a topic. The caller holds js.mu.
func (js *jobs) busy(topic string) error {
	for _, other := range js.all {
		if other.State().Ended.IsZero() && other.Many() && other.Action.Topic == topic {
			return fmt.Errorf("%w: a job of %s changes the letters of %s already", errBusy, short(other.Who), topic)
		}
	}
	return nil
}

// add adds a job, unless too many run, or another one changes the letters of the same topic.
func (js *jobs) add(j *job) error {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.forget(time.Now())
	if err := js.busy(j.Action.Topic); err != nil && j.Many() {
		return err
	}
	running := 0
	for _, other := range js.all {
		if other.State().Ended.IsZero() {
			running++
		}
	}
	if running >= mostRunning {
		return fmt.Errorf("%w: %d changes run already", errBusy, running)
	}
	js.all = append(js.all, j)
	return nil
}

// forget drops jobs that ended long ago, and the oldest ended ones if there are too many.
func (js *jobs) forget(now time.Time) {
	over := len(js.all) - mostEnded
	js.all = slices.DeleteFunc(js.all, func(j *job) bool {
		ended := j.State().Ended
		drop := !ended.IsZero() && (now.Sub(ended) > shownFor || over > 0)
		if drop {
			over--
		}
		return drop
	})
}

// free returns an error if a change of many letters of a topic could not begin now.
func (js *jobs) free(topic string) error {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.busy(topic)
}

// find returns the job with this ID, or nil.
func (js *jobs) find(id string) *job {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.all {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// list returns the jobs of a topic, or all if it is empty, the newest first.
func (js *jobs) list(topic string) (found []*job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.forget(time.Now())
	for _, j := range slices.Backward(js.all) {
		if topic == "" || j.Action.Topic == topic {
			found = append(found, j)
		}
	}
	return found
}

// buried reports whether a job has made an event of a group a dead letter. source is the topic of the broker that
// has the event.
func (js *jobs) buried(source, group, position string) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	return slices.ContainsFunc(js.all, func(j *job) bool {
		a := &j.Action
		return a.Verb == Bury && j.source == source && a.Group == group && a.Place == position && j.State().Result != ""
	})
}

// begin begins the change of an order, and returns its job.
func (c *changes) begin(r *http.Request, o *order) (*job, error) {
	who := c.visitor(r)
	if o.Verb == Stop {
		j := c.jobs.find(o.job)
		if j == nil {
			return nil, errNotFound
		}
		c.tell(r.Context(), slog.LevelInfo, "console: stop", who, &o.Action)
		j.stop(stopped{who})
		return j, nil
	}
	if err := c.supports(o.Verb); err != nil {
		return nil, err
	}
	o.pause.By, o.who = who, who
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), jobTime, errTooLong)
	ctx, stop := context.WithCancelCause(ctx)
	now := time.Now()
	j := &job{
		ID: rand.Text(), Who: who, Action: o.Action, Found: o.found, Rate: o.rate, Began: now, source: o.source(), moved: now,
		done: make(chan struct{}), stop: stop,
	}
	if err := c.jobs.add(j); err != nil {
		cancel()
		return nil, err
	}
	c.tell(ctx, slog.LevelInfo, "console: begin", who, &o.Action)
	go func() {
		defer close(j.done)
		defer cancel()
		j.work(ctx, func(ctx context.Context) (string, error) { return c.change(ctx, j, o) })
		c.shared.drop()
		if o.Verb.onLetters() {
			c.sampler.Changed(o.Topic)
		}
		c.ended(ctx, j)
	}()
	return j, nil
}

// ended writes the end of a job to the log.
func (c *changes) ended(ctx context.Context, j *job) {
	s := j.State()
	more := []slog.Attr{slog.Int("done", s.Done), slog.Duration("took", s.Ended.Sub(j.Began))}
	if s.Left != "" {
		more = append(more, slog.String("left", s.Left))
	}
	if s.Err != nil {
		c.tell(ctx, slog.LevelError, "console: failed", j.Who, &j.Action, append(more, slog.Any("error", s.Err))...)
		return
	}
	c.tell(ctx, slog.LevelInfo, "console: end", j.Who, &j.Action, append(more, slog.String("result", s.Result))...)
}

// change does the change of an order.
func (c *changes) change(ctx context.Context, j *job, o *order) (string, error) {
	switch {
	case o.Verb == Bury:
		return c.bury(ctx, j, o)
	case o.Verb == DeleteTopic:
		return c.deleteTopic(ctx, j, o)
	case o.Verb.onGroup():
		return c.changeGroup(ctx, j, o)
	}
	return c.changeLetters(ctx, j, o)
}

// resolve sets the Action of an order that stops a job: the job's Action with the Verb Stop.
func (c *changes) resolve(o *order) error {
	if o.Verb != Stop {
		return nil
	}
	j := c.jobs.find(o.job)
	if j == nil {
		return errNotFound
	}
	o.Action = j.Action
	o.Verb = Stop
	return nil
}

func jobURL(id string) string { return "job?" + url.Values{"id": {id}}.Encode() }

// A jobPage is the page of one job.
type jobPage struct {
	Job   *job
	State state
}

func (c *console) job(w http.ResponseWriter, r *http.Request) {
	j := c.changes.jobs.find(r.URL.Query().Get("id"))
	if j == nil {
		c.fail(w, r, "Not found", fmt.Errorf("%w: a change is forgotten an hour after its end, and when the console restarts", errNotFound))
		return
	}
	p := &page{Title: title(&j.Action), Live: true, Figures: c.sampler.Look(r.Context()), Body: &jobPage{j, j.State()}}
	if j.State().Ended.IsZero() {
		p.Permit = c.permit(w, r, j.Action, Stop)
	}
	c.render(w, r, http.StatusOK, "job", p)
}

func (c *console) jobList(w http.ResponseWriter, r *http.Request) {
	s := c.sampler.Look(r.Context())
	c.render(w, r, http.StatusOK, "jobs", &page{Title: "Changes", Live: true, Figures: s, Body: c.changes.jobs.list("")})
}
