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

// A Redrive has the options of [Topic.Redrive], which publishes the events of dead letters
// again. A zero field means its default.
type Redrive struct {
	Filter Filter

	// Limit is the most letters to redrive. Skipped letters do not count. Default: no bound.
	Limit int

	// Rate is the most letters to redrive per second. Default: no bound.
	Rate float64

	// MaxRedrives is how often an event may be redriven. A letter is skipped if its event
	// was redriven MaxRedrives times or more before. Default 3; negative: no bound.
	MaxRedrives int

	// If DryRun is set, Redrive counts letters and changes nothing. It still calls Edit, and
	// counts its errors in Report.Refused.
	DryRun bool

	// Edit, if set, is called for each letter l, before its event is published as m. It may
	// change the Key, Payload and Headers of m. Attributes of the event are headers such as
	// "ce-type". If Edit returns an error, the letter is skipped.
	Edit func(m *backend.Message, l *Letter) error

	// Progress, if set, is called with the report so far after each batch of at most 100
	// letters. With DryRun it is not called.
	Progress func(Report)
}

// A Report counts the letters of one call of Redrive.
type Report struct {
	Redriven int `json:"redriven"` // the event was stored again and the letter removed; with DryRun: would be
	Looping  int `json:"looping"`  // skipped, because of MaxRedrives
	NoGroup  int `json:"no_group"` // skipped, because the topic or the group does not exist any more

	// Refused counts letters that were skipped because Edit or the broker refused the
	// message. With Edit, it also counts letters whose event an earlier call had stored
	// before it could remove the letter. Such a letter is removed, and its event may lack
	// the edit.
	Refused int `json:"refused"`

	Err error `json:"-"` // the error of one of the Refused letters; nil if Refused is 0
}

// Redrive publishes again the events of the letters that r.Filter chooses, each for the one
// group that could not handle it. Handlers of other groups do not get the event. The event
// has its original ID, key, headers and payload. Its attempts begin with 1, and it does not
// expire. It is delivered after newer events of its key. After the event is stored, Redrive
// removes the letter.
//
// If the program dies during a Redrive, or the broker returns an error, call Redrive again.
// Calls may run concurrently. No event is lost. No event is stored twice by calls that are
// less than [backend.Limits].OnceWindow apart.
//
// A redriven event may fail again and become a new letter. A call of Redrive does not
// redrive its own events again, so it ends. For each topic it remembers the first position
// at which it stored an event, and skips letters of events from that position on. A group
// that is deleted during the call does not get the events.
//
// All members of all groups of the topic must run a version of the bus that knows Redrive.
// Older versions handle the event as a new one.
func (t *Topic) Redrive(ctx context.Context, r Redrive) (Report, error) {
	run := redriving{Redrive: r, topic: t, groups: map[string][]string{}, first: map[string]string{}, began: time.Now()}
	err := run.all(ctx)
	return run.report, err
}

// A redriving is the state of a call of Redrive.
type redriving struct {
	Redrive
	topic   *Topic
	groups  map[string][]string // the existing groups, by topic; looked up again for each step
	first   map[string]string   // the position of the first event that this call stored, by topic
	letters []*Letter           // the letters that are read, but not published again yet
	report  Report
	began   time.Time // of the current step
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
	next := func(from string) error { // a letter that was read does not wait, because another call may remove it meanwhile
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

// wait waits until Rate allows another step after one of sent letters, unless no message
// follows the position from.
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

// admits reports whether a letter may be redriven. If not, it counts the letter in the
// report.
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

// step stores the events of the collected letters. It then removes each letter whose event
// is stored.
func (r *redriving) step(ctx context.Context) error {
	letters := r.letters
	r.letters = nil
	clear(r.groups)
	var msgs []*backend.Message
	var places []string
	for _, l := range letters {
		m := letter.Event(l.message)
		if r.Edit != nil {
			if err := r.Edit(m, l); err != nil {
				r.refused(l.Place, err)
				continue
			}
		}
		letter.Redrive(m, l.message)
		msgs, places = append(msgs, m), append(places, l.Place)
	}
	var err error
	switch {
	case r.DryRun:
		r.report.Redriven += len(msgs)
		return nil
	case len(msgs) > 0:
		err = r.store(ctx, msgs, places)
	}
	if r.Progress != nil && len(letters) > 0 {
		r.Progress(r.report)
	}
	return err
}

// store stores msgs, and removes the letters whose events are stored. It counts them in the
// report, unless they cannot be removed: then the next call counts them.
func (r *redriving) store(ctx context.Context, msgs []*backend.Message, places []string) error {
	before := r.report.Redriven
	err := r.topic.backend.Publish(ctx, msgs)
	stored, failed := r.sort(msgs, places, err)
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

// sort returns the places of the letters whose events are stored, after Publish of msgs has
// returned err. It counts the letters in the report. If sort returns an error, Redrive
// ends.
func (r *redriving) sort(msgs []*backend.Message, places []string, err error) (stored []string, failed error) {
	for i, place := range places {
		m := msgs[i]
		switch e := backend.ErrorAt(err, i); {
		case e == nil:
			stored = append(stored, place)
			if first, ok := r.first[m.Topic]; !m.Duplicate && (!ok || m.Position < first) {
				r.first[m.Topic] = m.Position
			}
			if m.Duplicate && r.Edit != nil {
				r.refused(place, errUnedited)
			} else {
				r.report.Redriven++
			}
		case errors.Is(e, backend.ErrRefused), errors.Is(e, backend.ErrTooLarge):
			r.refused(place, e)
		default:
			failed = r.topic.failed("redrive", e)
		}
	}
	return stored, failed
}

func (r *redriving) refused(place string, err error) {
	r.report.Refused++
	r.report.Err = fmt.Errorf("deadletter: redrive %s of %s: %w", place, r.topic.name, err)
}
