package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
)

// A job is one change that was begun. Its goroutine ends when the change is done, when somebody stops
// it, when the backend fails for good or for too long, and after jobTime at the latest.
type job struct {
	ID     string
	Who    string
	Action Action
	Found  string  // how many letters the visitor was shown before; empty: not counted
	Rate   float64 // letters per second; 0: no bound
	Began  time.Time
	source string // of a Bury: the topic of the broker that has the event

	done chan struct{} // closed at the end
	stop context.CancelCauseFunc

	mu    sync.Mutex
	moved time.Time // of the last progress
	state
}

// The state of a job is the part of it that changes.
type state struct {
	Done    int           // letters, or groups of partitions
	Groups  []destination // that have failed, and get redriven events
	Letters string        // the topic of the dead letter that a Bury has stored
	Left    string        // letters that stay, and why; empty: none
	Waits   error         // the broker is away, and the job waits for it; nil: it is not
	Result  string        // empty: the job runs, or has failed
	Err     error         // why it has failed
	Ended   time.Time
}

const (
	jobTime  = 12 * time.Hour
	awayTime = time.Minute // how long a job waits for a broker
)

// Many reports whether the job changes any number of letters.
func (j *job) Many() bool { return j.Action.Verb.onLetters() && j.Action.Place == "" }

// State returns the present state.
func (j *job) State() state {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state
}

// Pace returns the letters per second so far.
func (s state) Pace(j *job, now time.Time) string {
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
func (s state) Word() string {
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

// progress sets how many were changed, and which letters stay.
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

const mostDestinations = 10

// concerns notes that the job changes letters of a group.
func (j *job) concerns(topic, group string) {
	if of, _, ok := partition.Cut(topic); ok {
		topic = of
	}
	d := destination{topic, group}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.Groups) < mostDestinations && !slices.Contains(j.Groups, d) {
		j.Groups = append(slices.Clip(j.Groups), destination{strings.Clone(topic), strings.Clone(group)})
	}
}

// stored notes the topic of the dead letter that the job has stored.
func (j *job) stored(letters string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Letters = letters
}

// A stopped error is the cause of a job that somebody has stopped.
type stopped struct{ by string }

func (s stopped) Error() string { return "stopped by " + s.by }

var errTooLong = fmt.Errorf("the job has run for %v, and ends", jobTime)

// work calls f, and ends the job with its result. A panic becomes an error.
func (j *job) work(ctx context.Context, f func(context.Context) (string, error)) {
	result, err := func() (result string, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the change has panicked: %v", v)
			}
		}()
		return f(ctx)
	}()
	if by, ok := errors.AsType[stopped](context.Cause(ctx)); ok && err != nil {
		result, err = by.Error(), nil
	} else if errors.Is(context.Cause(ctx), errTooLong) && err != nil {
		err = errTooLong
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Result, j.Err, j.Waits, j.Ended = result, err, nil, time.Now()
}

// patiently calls f again while the broker is away, until there was no progress for the time away.
func (j *job) patiently(ctx context.Context, away time.Duration, f func(context.Context) error) error {
	for pause := time.Second; ; pause = min(2*pause, away/4) {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || !isAway(err) {
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

// isAway reports whether err says that the broker may answer again soon.
func isAway(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded)
}
