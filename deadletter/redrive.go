package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A Redrive holds the options of [Topic.Redrive]. A zero field means its default.
type Redrive struct {
	Filter Filter

	// Limit is how many dead letters to redrive at most, not counting skipped ones. Default: no
	// limit.
	Limit int

	// Rate is how many dead letters to redrive per second at most. Default: no limit.
	Rate float64

	// MaxRedrives is how often an event may be redriven; if it has been redriven that often, its
	// dead letter is skipped. Default 3; negative means no limit.
	MaxRedrives int

	// DryRun makes Redrive count dead letters without changing anything. It still calls Edit, and
	// counts its errors in Report.Refused.
	DryRun bool

	// Edit, if set, is called for each dead letter l before its event is published as m. It may
	// change the Key, Payload and Headers of m. Attributes of the event are headers such as
	// "ce-type". If Edit returns an error, the letter is skipped.
	Edit func(m *backend.Message, l *Letter) error

	// Progress, if set, is called with the report so far after each batch of up to 100 dead
	// letters. It is not called with DryRun.
	Progress func(Report)
}

// A Report counts the dead letters of one call to Redrive.
type Report struct {
	Redriven int `json:"redriven"` // the event was stored again and the dead letter removed, or would be with DryRun
	Looping  int `json:"looping"`  // skipped because of MaxRedrives
	NoGroup  int `json:"no_group"` // skipped because the topic or the group no longer exists

	// Refused counts dead letters that were skipped because Edit or the broker refused the message.
	// With Edit, it also counts those whose event an earlier call had stored but whose letter it
	// could not remove. Such a letter is removed, and its event may lack the edit.
	Refused int `json:"refused"`

	Err error `json:"-"` // the error of one of the Refused letters, or nil if there are none
}

// Redrive publishes the events of the dead letters that r.Filter selects again, each for the one
// group that could not handle it; handlers of other groups don't get it. The event keeps its ID,
// key, headers and payload, starts at attempt 1, does not expire, and is delivered after newer
// events of its key. Once it is stored, Redrive removes the dead letter.
//
// If the program crashes during a Redrive, or the broker returns an error, call Redrive again.
// Calls may run concurrently. No event is lost, and no event is stored twice by calls that are less
// than [backend.Limits].OnceWindow apart.
//
// A redriven event may fail again and become a new dead letter. Redrive always ends, because it
// doesn't redrive those: for each topic it remembers the first position at which it stored an
// event, and skips letters of events from that position on. A group that is deleted during the call
// doesn't get the events.
//
// All members of all groups of the topic must run a version of the bus that knows Redrive; older
// versions handle the event as a new one.
func (t *Topic) Redrive(ctx context.Context, r Redrive) (Report, error) {
	run := redriving{Redrive: r, topic: t, groups: map[string][]string{}, first: map[string]string{}, began: time.Now()}
	err := run.all(ctx)
	return run.report, err
}

// A redriving is the state of a call to Redrive.
type redriving struct {
	Redrive
	topic   *Topic
	groups  map[string][]string // the existing groups by topic, looked up again for each step
	first   map[string]string   // the position of the first event that this call stored, by topic
	letters []*Letter           // letters that were read but not yet published
	report  Report
	began   time.Time // when the current step began
}

func (r *redriving) all(ctx context.Context) error {
	if r.MaxRedrives == 0 {
		r.MaxRedrives = 3
	}
	most := page
	if r.Rate > 0 {
		most = max(1, min(page, int(r.Rate)))
	}
	if n := backend.LimitsOf(r.topic.backend).Batch; n > 0 {
		most = min(most, n)
	}
	next := func(from string) error { // letters that were read are published before waiting, because another call may remove them in the meantime
		sent := len(r.letters)
		if err := r.step(ctx); err != nil {
			return err
		}
		return r.wait(ctx, sent, from)
	}
	for l, err := range r.topic.pages(ctx, r.Filter, most, next) {
		if err != nil {
			return err
		}
		if first, ok := r.first[l.Topic]; ok && l.Position >= first {
			continue
		}
		if ok, err := r.admits(ctx, l); err != nil {
			return err
		} else if !ok {
			continue
		}
		r.letters = append(r.letters, l)
		if r.Limit > 0 && r.report.Redriven+len(r.letters) >= r.Limit {
			if err := r.step(ctx); err != nil || r.report.Redriven >= r.Limit {
				return err
			}
		}
	}
	return nil
}

// wait waits until Rate allows another step after one of sent letters, unless there is no message
// after the position from.
func (r *redriving) wait(ctx context.Context, sent int, from string) error {
	began := r.began
	r.began = time.Now()
	if r.Rate <= 0 || r.DryRun || sent == 0 {
		return nil
	}
	if ms, err := backend.Read(ctx, r.topic.backend, r.topic.name, backend.StartAfter(from), 1); err == nil && len(ms) == 0 {
		return nil
	}
	pace := min(float64(sent)/r.Rate*float64(time.Second), math.MaxInt64/2)
	select {
	case <-time.After(time.Until(began.Add(time.Duration(pace)))):
		r.began = time.Now()
		return nil
	case <-ctx.Done():
		return r.topic.failed("redrive", ctx.Err())
	}
}

// admits reports whether a letter may be redriven, and otherwise counts it in the report.
func (r *redriving) admits(ctx context.Context, l *Letter) (bool, error) {
	if r.MaxRedrives > 0 && l.Redriven >= r.MaxRedrives {
		r.report.Looping++
		return false, nil
	}
	groups, known := r.groups[l.Topic]
	if !known && backend.CheckName(l.Topic) == nil {
		admin, ok := backend.As[backend.Admin](r.topic.backend)
		if !ok {
			return true, nil
		}
		var err error
		groups, err = admin.Groups(ctx, l.Topic)
		if err != nil && !errors.Is(err, backend.ErrGone) {
			return false, r.topic.failed("redrive", err)
		}
		r.groups[l.Topic] = groups
	}
	if !slices.Contains(groups, l.Group) {
		r.report.NoGroup++
		return false, nil
	}
	return true, nil
}

// step stores the events of the collected letters, and removes those letters whose event was
// stored.
func (r *redriving) step(ctx context.Context) error {
	letters := r.letters
	r.letters = nil
	clear(r.groups)
	var msgs []*backend.Message
	var positions []string
	for _, l := range letters {
		m := letter.Event(l.message)
		if r.Edit != nil {
			if err := r.Edit(m, l); err != nil {
				r.refused(l.Place, err)
				continue
			}
		}
		letter.Redrive(m, l.message)
		msgs, positions = append(msgs, m), append(positions, l.Place)
	}
	var err error
	switch {
	case r.DryRun:
		r.report.Redriven += len(msgs)
		return nil
	case len(msgs) > 0:
		err = r.store(ctx, msgs, positions)
	}
	if r.Progress != nil && len(letters) > 0 {
		r.Progress(r.report)
	}
	return err
}

// store stores msgs and removes the letters whose events were stored. It counts them in the report,
// unless they cannot be removed, in which case the next call counts them.
func (r *redriving) store(ctx context.Context, msgs []*backend.Message, positions []string) error {
	before := r.report.Redriven
	err := r.topic.backend.Publish(ctx, msgs)
	stored, failed := r.sort(msgs, positions, err)
	if len(stored) > 0 {
		// The letters are removed even if ctx ends, because their events are stored.
		live, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(removeTimeout, cancel) })()
		ctx = live
		if err := backend.Remove(ctx, r.topic.backend, r.topic.name, stored); err != nil {
			r.report.Redriven = before
			return errors.Join(failed, r.topic.failed("remove letters", err))
		}
	}
	return failed
}

const removeTimeout = 10 * time.Second // after the context of a call has ended

var errUnedited = errors.New("an earlier call has stored the event, perhaps without this edit")

// sort returns the positions of the letters whose events are stored after Publish of msgs returned
// err, and counts the letters in the report. If it returns an error, Redrive ends.
func (r *redriving) sort(msgs []*backend.Message, positions []string, err error) (stored []string, failed error) {
	for i, position := range positions {
		m := msgs[i]
		switch e := backend.ErrorAt(err, i); {
		case e == nil:
			stored = append(stored, position)
			if first, ok := r.first[m.Topic]; !m.Duplicate && (!ok || m.Position < first) {
				r.first[m.Topic] = m.Position
			}
			if m.Duplicate && r.Edit != nil {
				r.refused(position, errUnedited)
			} else {
				r.report.Redriven++
			}
		case errors.Is(e, backend.ErrRefused), errors.Is(e, backend.ErrTooLarge):
			r.refused(position, e)
		default:
			failed = r.topic.failed("redrive", e)
		}
	}
	return stored, failed
}

func (r *redriving) refused(position string, err error) {
	r.report.Refused++
	r.report.Err = fmt.Errorf("deadletter: redrive %s of %s: %w", position, r.topic.name, err)
}
