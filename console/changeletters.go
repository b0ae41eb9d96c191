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
func (c *changes) changeLetters(ctx context.Context, j *job, o *order) (string, error) {
	b := bound(c.backend)
	t, err := deadletter.Open(b, o.Topic)
	if err != nil {
		return "", err
	}
	what := "discarded"
	if o.Verb == Discard {
		err = c.discard(ctx, j, o, t, b)
	} else {
		what = "redriven"
		err = c.redrive(ctx, j, o, t)
	}
	if err != nil {
		return "", err
	}
	s := j.State()
	if s.Done == 0 && s.Left == "" {
		return "no dead letter matches any more", nil
	}
	return plural(s.Done, "dead letter") + " " + what, nil
}

// filter returns the filter of the letters that an order takes. The job notes their groups.
func (c *changes) filter(j *job, o *order) deadletter.Filter {
	return deadletter.Filter{From: o.from, Place: o.Place, Match: func(l *deadletter.Letter) bool {
		m := l.Stored()
		_, ok := o.takes(c.redact, &m)
		if ok {
			j.concerns(l.Topic, l.Group)
		}
		return ok
	}}
}

// mostRedrives is how often an event may be redriven by a filter, as by the command.
const mostRedrives = 3

// redrive redrives letters. If the broker is away it redrives again, as long as the backend certainly
// remembers the events that were stored before.
func (c *changes) redrive(ctx context.Context, j *job, o *order, t *deadletter.Topic) error {
	r := deadletter.Redrive{Filter: c.filter(j, o), Rate: o.rate, MaxRedrives: mostRedrives}
	if o.Place != "" {
		r.MaxRedrives = -1 // the operator has chosen this letter
	}
	if o.Verb == Edit {
		r.Edit = c.editing(o)
	}
	before := 0
	return j.patiently(ctx, min(awayTime, backend.LimitsOf(c.backend).OnceWindow-onceMargin), func(ctx context.Context) error {
		r.Progress = func(now deadletter.Report) { j.progress(before+now.Redriven, left(&now)) }
		report, err := t.Redrive(ctx, r)
		before += report.Redriven
		j.progress(before, left(&report))
		return err
	})
}

// left says which letters a redrive has left.
func left(r *deadletter.Report) string {
	var all []string
	for _, some := range []struct {
		n   int
		why string
	}{{r.Looping, "redriven too often"}, {r.NoGroup, "without their group"}, {r.Refused, "refused"}} {
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

const discardBatch = 100 // letters of one call

// discard removes letters of t, which is in b, for good.
func (c *changes) discard(ctx context.Context, j *job, o *order, t *deadletter.Topic, b backend.Backend) error {
	most := discardBatch
	if o.rate > 0 {
		most = max(1, min(most, int(o.rate)))
	}
	if n := backend.LimitsOf(c.backend).Batch; n > 0 {
		most = min(most, n)
	}
	done := 0
	var places []string
	remove := func() error {
		if len(places) == 0 {
			return nil
		}
		if err := backend.Remove(ctx, b, o.Topic, places); err != nil {
			return err
		}
		done += len(places)
		places = places[:0]
		j.progress(done, "")
		return nil
	}
	return j.patiently(ctx, awayTime, func(ctx context.Context) error {
		places = places[:0]
		for l, err := range t.All(ctx, c.filter(j, o)) {
			if err != nil {
				return err
			}
			if places = append(places, l.Place); len(places) < most {
				continue
			}
			if err := remove(); err != nil {
				return err
			}
			if err := pace(ctx, most, o.rate); err != nil {
				return err
			}
		}
		return remove()
	})
}

// pace waits as long as n letters take at a rate.
func pace(ctx context.Context, n int, rate float64) error {
	if rate <= 0 {
		return nil
	}
	select {
	case <-time.After(time.Duration(min(float64(n)/rate, jobTime.Seconds()) * float64(time.Second))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
