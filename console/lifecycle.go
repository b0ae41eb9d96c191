package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pages"
	"github.com/seed41896749/eventbus/lifecycle"
)

// A lifecyclePage is the page of the newest lifecycle records about a topic.
type lifecyclePage struct {
	Topic   string
	Group   string // only the records of this group; empty: of all
	Records []shownRecord
	Read    int // records among which the page has looked
	Failure *failure
}

// maxLifecycleRows is the most records of a page.
const maxLifecycleRows = 50

func (c *console) lifecycle(w http.ResponseWriter, r *http.Request) {
	topic, ok := c.topicParam(w, r, "topic")
	if !ok {
		return
	}
	body, code := &lifecyclePage{Topic: topic, Group: r.URL.Query().Get("group")}, http.StatusOK
	all, err := c.recordsOf(r.Context(), topic)
	if err != nil {
		var f failure
		code, f = failureOf(err)
		body.Failure = &f
	}
	body.Read = len(all)
	for _, r := range slices.Backward(all) {
		if len(body.Records) < maxLifecycleRows && (body.Group == "" || r.Group == body.Group) {
			body.Records = append(body.Records, r)
		}
	}
	c.render(w, r, code, "lifecycle", &page{Title: "Lifecycle of events of " + topic, Live: true, Figures: c.sampler.Look(r.Context()), Body: body})
}

// recordsTopic returns the topic about whose events a topic of this name has records, or "" if
// there is none.
func recordsTopic(name string) string {
	of, ok := strings.CutSuffix(name, lifecycle.Topic(""))
	if !ok {
		return ""
	}
	return of
}

// A recordTail holds the newest lifecycle records for the events of one topic.
type recordTail struct {
	records []shownRecord // oldest first
	from    backend.Start // behind the newest record
	began   time.Time     // when the first of the records was read; zero: none was
}

// A shownRecord is a lifecycle record as the page shows it.
type shownRecord struct {
	lifecycle.Record
	Source   string // the program that wrote it
	Unclear  bool   // it cannot be read, because it is damaged or hidden
	Position string
}

const (
	initialRecords = 250 // at least so many are read at first, if there are so many
	maxRecords     = 500 // that are kept
	maxRecordField = 512 // bytes of each field but the error
	recordTailTime = time.Minute
)

// update reads the new records. A tail starts over after a minute, because old records are removed and
// the topic may have been recreated, and when it falls behind.
func (j *recordTail) update(ctx context.Context, tr *topicReader) error {
	if j.began.IsZero() || time.Since(j.began) > recordTailTime {
		if err := j.start(ctx, tr); err != nil || j.began.IsZero() {
			return err
		}
	}
	read := tr.pagesFrom(j.from)
	for {
		ms, err := read.Next(ctx, pages.MostPage)
		switch {
		case errors.Is(err, pages.ErrSpent):
			j.began = time.Time{}
			if len(j.records) == 0 {
				return err
			}
			return nil
		case errors.Is(err, backend.ErrGone):
			*j = recordTail{}
			return nil
		case err != nil:
			return err
		case len(ms) == 0:
			return nil
		}
		for i := range ms {
			j.add(tr, &ms[i])
		}
		j.from = read.From
	}
}

// start finds where the newest records begin.
func (j *recordTail) start(ctx context.Context, tr *topicReader) error {
	rows, _, err := tr.newest(ctx, "", initialRecords)
	switch {
	case errors.Is(err, backend.ErrGone), err == nil && len(rows) == 0:
		*j = recordTail{}
		return nil
	case err != nil:
		return err
	}
	*j = recordTail{from: rows[0].From, began: time.Now()}
	return nil
}

func (j *recordTail) add(tr *topicReader, m *backend.Message) {
	e := tr.redact.EventOf(m)
	seen := *m
	seen.Payload = e.Payload
	r, ok, err := lifecycle.Decode(&seen)
	if !ok {
		return // an event of a program that has a topic of this name
	}
	if err != nil {
		r = lifecycle.Record{Time: e.Time}
	}
	j.records = append(j.records[max(len(j.records)+1-maxRecords, 0):], newShownRecord(&r, &e, err != nil))
}

// newShownRecord returns a record without the memory of its message.
func newShownRecord(r *lifecycle.Record, e *eventbus.Event, unclear bool) shownRecord {
	one := shownRecord{Record: *r, Source: e.Source, Unclear: unclear, Position: strings.Clone(e.Position)}
	one.Record.Position = ""
	one.Error = strings.Clone(cutText(one.Error))
	for _, s := range []*string{(*string)(&one.State), &one.Topic, &one.Group, &one.ID, &one.Type, &one.Reason, &one.Class, &one.Source} {
		*s = strings.Clone((*s)[:min(len(*s), maxRecordField)])
	}
	return one
}

// Due returns when the event is redelivered after a retry or a snooze.
func (r *shownRecord) Due() time.Time {
	return r.Time.Add(time.Duration(r.DelayMicros) * time.Microsecond)
}

// Delayed reports whether the event is redelivered after a delay.
func (r *shownRecord) Delayed() bool {
	return r.State == lifecycle.Retried || r.State == lifecycle.Snoozed
}

// Word returns the state.
func (r *shownRecord) Word() string { return string(r.State) }

// Snoozes reports whether the handler has put the event off, without an error.
func (r *shownRecord) Snoozes() bool { return r.State == lifecycle.Snoozed }

// Attempts returns the attempts that were made, and the most of them.
func (r *shownRecord) Attempts() string {
	if r.MaxAttempts > 0 {
		return fmt.Sprintf("%d of %d", r.Attempt, r.MaxAttempts)
	}
	return strconv.Itoa(r.Attempt)
}

// Took returns how long the run took, or "" if that was not recorded.
func (r *shownRecord) Took() string {
	if r.TookMicros <= 0 {
		return ""
	}
	return (time.Duration(r.TookMicros) * time.Microsecond).String()
}

// Event returns the URL of a search for the event of the record in a topic.
func (r *shownRecord) Event(topic string) string {
	return searchURL(topic, r.ID)
}

// recordsOf returns the newest lifecycle records about the events of a topic, oldest first. It returns
// none if there is no topic of records.
func (r *reader) recordsOf(ctx context.Context, topic string) ([]shownRecord, error) {
	log := lifecycle.Topic(topic)
	if backend.CheckName(log) != nil {
		return nil, nil //nolint:nilerr // a topic with so long a name has no records
	}
	return readShared(ctx, r, "lifecycle\x00"+topic, func(ctx context.Context) (records []shownRecord, err error) {
		err = r.recordTails.use(ctx, log, func(j *recordTail) error {
			err := j.update(ctx, r.openTopic(ctx, log))
			records = slices.Clone(j.records)
			return err
		})
		return records, err
	})
}

// waitingRecords returns the records of those events of a group that wait for another attempt, the next one
// first. Another record about the event ends the wait. The record of the failed run is none, because it
// may come before or after the record of the retry.
func waitingRecords(records []shownRecord, group string) (wait []shownRecord) {
	last := map[string]shownRecord{}
	for _, r := range records {
		switch {
		case r.Unclear || r.Group != group:
		case r.Delayed():
			last[r.ID] = r
		case r.State != lifecycle.Failed:
			delete(last, r.ID)
		}
	}
	for _, r := range last {
		wait = append(wait, r)
	}
	slices.SortFunc(wait, func(a, b shownRecord) int { return a.Due().Compare(b.Due()) })
	return wait
}
