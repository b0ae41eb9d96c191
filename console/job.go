package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
)

// A job is one change that was begun. Its goroutine ends when the change is done, when somebody stops
// it, when the backend fails for good or for too long, and after jobTimeout at the latest.
type job struct {
	ID     string
	Who    string
	Action Action
	Found  string  // how many dead letters the visitor was shown before; empty: not counted
	Rate   float64 // dead letters per second; 0: no bound
	Began  time.Time
	source string // of a Bury: the topic of the broker that has the event

	done chan struct{} // closed at the end
	stop context.CancelCauseFunc

	mu    sync.Mutex
	moved time.Time // of the last progress
	jobState
}

// A jobState is the part of a job that changes.
type jobState struct {
	Done    int           // dead letters, or groups of partitions
	Groups  []destination // that have failed, and get redriven events
	Letters string        // the topic of the dead letter that a Bury has stored
	Left    string        // dead letters that stay, and why; empty: none
	Waits   error         // the broker is away, and the job waits for it; nil: it is not
	Result  string        // empty: the job runs, or has failed
	Err     error         // why it has failed
	Ended   time.Time
}

const (
	jobTimeout      = 12 * time.Hour
	unavailableTime = time.Minute // how long a job waits for a broker
)

// Many reports whether the job changes any number of dead letters.
func (j *job) Many() bool { return j.Action.Verb.onLetters() && j.Action.Place == "" }

// State returns a copy of the current state.
func (j *job) State() jobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.jobState
}

// Pace returns the dead letters per second so far.
func (s jobState) Pace(j *job, now time.Time) string {
	end := now
	if !s.Ended.IsZero() {
		end = s.Ended
	}
	took := end.Sub(j.Began)
	if took < time.Second {
		return "–"
	}
	return fmt.Sprintf("%.1f", float64(s.Done)/took.Seconds())
}

// Word returns the state in one word.
func (s jobState) Word() string {
	switch {
	case s.Err != nil:
		return "failed"
	case !s.Ended.IsZero():
		return "done"
	case s.Waits != nil:
		return "waiting"
	}
	return "running"
}

// progress sets how many were changed, and which dead letters stay.
func (j *job) progress(done int, left string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if done > j.Done {
		j.moved = time.Now()
	}
	j.Done, j.Left, j.Waits = done, left, nil
}

// A destination is a group, and its topic as the pages name it.
type destination struct{ Topic, Group string }

const maxDestinations = 10

// addDestination records that the job changes dead letters of a group.
func (j *job) addDestination(topic, group string) {
	if of, _, ok := partition.Cut(topic); ok {
		topic = of
	}
	d := destination{topic, group}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.Groups) < maxDestinations && !slices.Contains(j.Groups, d) {
		j.Groups = append(slices.Clip(j.Groups), destination{strings.Clone(topic), strings.Clone(group)})
	}
}

// setDeadLetterTopic records where the job has stored its dead letter.
func (j *job) setDeadLetterTopic(letters string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Letters = letters
}

// A stoppedError is the cause with which somebody has stopped a job.
type stoppedError struct{ by string }

func (s stoppedError) Error() string { return "stopped by " + s.by }

var errTooLong = fmt.Errorf("the job was stopped after %v", jobTimeout)

// run calls f, and ends the job with its result. A panic becomes an error.
func (j *job) run(ctx context.Context, f func(context.Context) (string, error)) {
	result, err := func() (result string, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the change panicked: %v", v)
			}
		}()
		return f(ctx)
	}()
	if by, ok := errors.AsType[stoppedError](context.Cause(ctx)); ok && err != nil {
		result, err = by.Error(), nil
	} else if errors.Is(context.Cause(ctx), errTooLong) && err != nil {
		err = errTooLong
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Result, j.Err, j.Waits, j.Ended = result, err, nil, time.Now()
}

// retryWhileUnavailable calls f again while the broker is away, until there was no progress for the time away.
func (j *job) retryWhileUnavailable(ctx context.Context, away time.Duration, f func(context.Context) error) error {
	for pause := time.Second; ; pause = min(2*pause, away/4) {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || !isUnavailable(err) {
			return err
		}
		j.mu.Lock()
		idle := time.Since(j.moved)
		j.Waits = err
		j.mu.Unlock()
		if idle+pause > away {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isUnavailable reports whether err says that the broker may answer again soon.
func isUnavailable(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded)
}

// A jobRegistry holds the running changes and, for a while, those that have ended. It is in memory: a
// restart forgets them, and the dead letters that they have not reached stay.
type jobRegistry struct {
	mu  sync.Mutex
	all []*job // the oldest first
}

const (
	maxRunning = 8
	maxEnded   = 100
	shownFor   = time.Hour // after the end
)

// errBusy is the class of errors of a change that may begin later.
var errBusy = errors.New("nothing was started")

// checkBusy returns an error if a job is changing many dead letters of a topic. The caller holds js.mu.
func (js *jobRegistry) checkBusy(topic string) error {
	for _, other := range js.all {
		if other.State().Ended.IsZero() && other.Many() && other.Action.Topic == topic {
			return fmt.Errorf("%w: a job of %s is already changing the dead letters of %s", errBusy, shorten(other.Who), topic)
		}
	}
	return nil
}

// add adds a job, unless too many are running or another one is changing the dead letters of the topic.
func (js *jobRegistry) add(j *job) error {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.prune(time.Now())
	if err := js.checkBusy(j.Action.Topic); err != nil && j.Many() {
		return err
	}
	running := 0
	for _, other := range js.all {
		if other.State().Ended.IsZero() {
			running++
		}
	}
	if running >= maxRunning {
		return fmt.Errorf("%w: %d changes are already running", errBusy, running)
	}
	js.all = append(js.all, j)
	return nil
}

// prune drops jobs that ended long ago, and the oldest ended ones if there are too many.
func (js *jobRegistry) prune(now time.Time) {
	over := len(js.all) - maxEnded
	js.all = slices.DeleteFunc(js.all, func(j *job) bool {
		ended := j.State().Ended
		drop := !ended.IsZero() && (now.Sub(ended) > shownFor || over > 0)
		if drop {
			over--
		}
		return drop
	})
}

// checkFree returns an error if a change to many of a topic's dead letters could not start now.
func (js *jobRegistry) checkFree(topic string) error {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.checkBusy(topic)
}

// find returns the job with this ID, or nil.
func (js *jobRegistry) find(id string) *job {
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
func (js *jobRegistry) list(topic string) (found []*job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.prune(time.Now())
	for _, j := range slices.Backward(js.all) {
		if topic == "" || j.Action.Topic == topic {
			found = append(found, j)
		}
	}
	return found
}

// buried reports whether a job has made an event of a group a dead letter. source is the topic of the broker that
// has the event.
func (js *jobRegistry) buried(source, group, position string) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	return slices.ContainsFunc(js.all, func(j *job) bool {
		a := &j.Action
		return a.Verb == Bury && j.source == source && a.Group == group && a.Place == position && j.State().Result != ""
	})
}

// A jobPage is the page of one job.
type jobPage struct {
	Job   *job
	State jobState
}

func (c *console) job(w http.ResponseWriter, r *http.Request) {
	j := c.executor.jobs.find(r.URL.Query().Get("id"))
	if j == nil {
		c.fail(w, r, "Not found", fmt.Errorf("%w: changes are forgotten an hour after they end, and when the console restarts", errNotFound))
		return
	}
	p := &page{Title: title(&j.Action), Live: true, Figures: c.sampler.Look(r.Context()), Body: &jobPage{j, j.State()}}
	if j.State().Ended.IsZero() {
		p.Permit = c.permissions(w, r, j.Action, Stop)
	}
	c.render(w, r, http.StatusOK, "job", p)
}

func (c *console) jobList(w http.ResponseWriter, r *http.Request) {
	s := c.sampler.Look(r.Context())
	c.render(w, r, http.StatusOK, "jobs", &page{Title: "Changes", Live: true, Figures: s, Body: c.executor.jobs.list("")})
}

const (
	// callTimeout bounds one call for a change of dead letters. A broker that takes longer counts as
	// unavailable.
	callTimeout = 10 * time.Second

	// onceMargin is the part of the OnceWindow in which a redrive does not begin again. It then reads,
	// lists groups and publishes, and the last of these calls has to be in the window.
	onceMargin = 4 * callTimeout
)

// A timedBackend ends each call for a change of dead letters after callTimeout. A driver may rely on the
// deadline of the context, and that of a job is hours away.
type timedBackend struct{ backend.Backend }

// A timedAdmin is a timedBackend that lists groups.
type timedAdmin struct {
	timedBackend
	backend.Admin
}

var (
	_ backend.Reader  = timedBackend{}
	_ backend.Remover = timedBackend{}
	_ backend.Admin   = timedAdmin{}
)

// withCallTimeout returns b with a timeout for each call. A backend that cannot list groups still cannot.
func withCallTimeout(b backend.Backend) backend.Backend {
	if admin, ok := backend.As[backend.Admin](b); ok {
		return timedAdmin{timedBackend{b}, admin}
	}
	return timedBackend{b}
}

func (b timedBackend) Unwrap() backend.Backend { return b.Backend }

func (b timedBackend) Publish(ctx context.Context, ms []*backend.Message) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return b.Backend.Publish(ctx, ms)
}

func (b timedBackend) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return backend.Read(ctx, b.Backend, topic, from, limit)
}

func (b timedBackend) Remove(ctx context.Context, topic string, positions []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return backend.Remove(ctx, b.Backend, topic, positions)
}

func (b timedAdmin) Groups(ctx context.Context, topic string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return b.Admin.Groups(ctx, topic)
}
