package console

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
)

// changeLetters redrives or discards dead letters, or edits one.
func (x *executor) changeLetters(ctx context.Context, j *job, form *changeForm) (string, error) {
	b := withCallTimeout(x.backend)
	t, err := deadletter.Open(b, form.Topic)
	if err != nil {
		return "", err
	}
	what := "discarded"
	if form.Verb == Discard {
		err = x.discard(ctx, j, form, t, b)
	} else {
		what = "redriven"
		err = x.redrive(ctx, j, form, t)
	}
	if err != nil {
		return "", err
	}
	s := j.State()
	if s.Done == 0 && s.Left == "" {
		return "no dead letters match anymore", nil
	}
	return plural(s.Done, "dead letter") + " " + what, nil
}

// filter returns the filter for the dead letters that a form selects. The job records their groups.
func (x *executor) filter(j *job, form *changeForm) deadletter.Filter {
	return deadletter.Filter{From: form.from, Place: form.Place, Match: func(l *deadletter.Letter) bool {
		m := l.Stored()
		_, ok := form.matches(x.redact, &m)
		if ok {
			j.addDestination(l.Topic, l.Group)
		}
		return ok
	}}
}

// maxRedrives is how often an event may be redriven by a filter, as by the command.
const maxRedrives = 3

// redrive redrives dead letters. If the broker is away it redrives again, as long as the backend certainly
// remembers the events that were stored before.
func (x *executor) redrive(ctx context.Context, j *job, form *changeForm, t *deadletter.Topic) error {
	r := deadletter.Redrive{Filter: x.filter(j, form), Rate: form.rate, MaxRedrives: maxRedrives}
	if form.Place != "" {
		r.MaxRedrives = -1 // the operator has chosen this letter
	}
	if form.Verb == Edit {
		r.Edit = x.editFunc(form)
	}
	before := 0
	return j.retryWhileUnavailable(ctx, min(unavailableTime, backend.LimitsOf(x.backend).OnceWindow-onceMargin), func(ctx context.Context) error {
		r.Progress = func(now deadletter.Report) { j.progress(before+now.Redriven, leftText(&now)) }
		report, err := t.Redrive(ctx, r)
		before += report.Redriven
		j.progress(before, leftText(&report))
		return err
	})
}

// leftText says which dead letters a redrive has left.
func leftText(r *deadletter.Report) string {
	var all []string
	for _, some := range []struct {
		n   int
		why string
	}{{r.Looping, "redriven too often"}, {r.NoGroup, "group missing"}, {r.Refused, "refused"}} {
		if some.n > 0 {
			all = append(all, fmt.Sprintf("%s %d", some.why, some.n))
		}
	}
	text := strings.Join(all, ", ")
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return text
}

const discardBatch = 100 // dead letters per call

// discard permanently removes dead letters of t, which is in b.
func (x *executor) discard(ctx context.Context, j *job, form *changeForm, t *deadletter.Topic, b backend.Backend) error {
	most := discardBatch
	if form.rate > 0 {
		most = max(1, min(most, int(form.rate)))
	}
	if n := backend.LimitsOf(x.backend).Batch; n > 0 {
		most = min(most, n)
	}
	done := 0
	var positions []string
	remove := func() error {
		if len(positions) == 0 {
			return nil
		}
		if err := backend.Remove(ctx, b, form.Topic, positions); err != nil {
			return err
		}
		done += len(positions)
		positions = positions[:0]
		j.progress(done, "")
		return nil
	}
	return j.retryWhileUnavailable(ctx, unavailableTime, func(ctx context.Context) error {
		positions = positions[:0]
		for l, err := range t.All(ctx, x.filter(j, form)) {
			if err != nil {
				return err
			}
			if positions = append(positions, l.Place); len(positions) < most {
				continue
			}
			if err := remove(); err != nil {
				return err
			}
			if err := waitForRate(ctx, most, form.rate); err != nil {
				return err
			}
		}
		return remove()
	})
}

// waitForRate waits as long as n dead letters take at a rate.
func waitForRate(ctx context.Context, n int, rate float64) error {
	if rate <= 0 {
		return nil
	}
	select {
	case <-time.After(time.Duration(min(float64(n)/rate, jobTimeout.Seconds()) * float64(time.Second))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
