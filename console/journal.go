package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pages"
	"github.com/seed41896749/eventbus/lifecycle"
)

// A journal has the newest lifecycle records about the events of one topic.
type journal struct {
	records []record      // oldest first
	from    backend.Start // behind the newest record
	began   time.Time     // when the first of the records was read; zero: none was
}

// A record is a lifecycle record as it is shown.
type record struct {
	lifecycle.Record
	Source   string // the program that wrote it
	Unclear  bool   // it cannot be read, because it is damaged or hidden
	Position string
}

const (
	firstRecords = 250 // at least so many are read at first, if there are so many
	mostRecords  = 500 // that are kept
	mostField    = 512 // bytes of each field but the error
	journalFor   = time.Minute
)

// step reads the records that are new. A journal begins anew after a minute, because old records are
// removed, and the topic may be another one of the same name. It does so too if it falls behind.
func (j *journal) step(ctx context.Context, b *browser) error {
	if j.began.IsZero() || time.Since(j.began) > journalFor {
		if err := j.begin(ctx, b); err != nil || j.began.IsZero() {
			return err
		}
	}
	read := b.reader(j.from)
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
			*j = journal{}
			return nil
		case err != nil:
			return err
		case len(ms) == 0:
			return nil
		}
		for i := range ms {
			j.add(b, &ms[i])
		}
		j.from = read.From
	}
}

// begin finds the place where the newest records begin.
func (j *journal) begin(ctx context.Context, b *browser) error {
	rows, _, err := b.newest(ctx, "", firstRecords)
	switch {
	case errors.Is(err, backend.ErrGone), err == nil && len(rows) == 0:
		*j = journal{}
		return nil
	case err != nil:
		return err
	}
	*j = journal{from: rows[0].From, began: time.Now()}
	return nil
}

func (j *journal) add(b *browser, m *backend.Message) {
	e := b.redact.EventOf(m)
	seen := *m
	seen.Payload = e.Payload
	r, ok, err := lifecycle.Decode(&seen)
	if !ok {
		return // an event of a program that has a topic of this name
	}
	if err != nil {
		r = lifecycle.Record{Time: e.Time}
	}
	j.records = append(j.records[max(len(j.records)+1-mostRecords, 0):], newRecord(&r, &e, err != nil))
}

// newRecord returns a record without the memory of its message.
func newRecord(r *lifecycle.Record, e *eventbus.Event, unclear bool) record {
	one := record{Record: *r, Source: e.Source, Unclear: unclear, Position: strings.Clone(e.Position)}
	one.Record.Position = ""
	one.Error = strings.Clone(cutText(one.Error))
	for _, s := range []*string{(*string)(&one.State), &one.Topic, &one.Group, &one.ID, &one.Type, &one.Reason, &one.Class, &one.Source} {
		*s = strings.Clone((*s)[:min(len(*s), mostField)])
	}
	return one
}

// Due returns when the event is redelivered after a retry or a snooze.
func (r *record) Due() time.Time {
	return r.Time.Add(time.Duration(r.DelayMicros) * time.Microsecond)
}

// Delayed reports whether the event is redelivered after a delay.
func (r *record) Delayed() bool { return r.State == lifecycle.Retried || r.State == lifecycle.Snoozed }

// Word returns the state.
func (r *record) Word() string { return string(r.State) }

// Snoozes reports whether the handler has put the event off, without an error.
func (r *record) Snoozes() bool { return r.State == lifecycle.Snoozed }

// Attempts returns the attempts that were made, and the most of them.
func (r *record) Attempts() string {
	if r.MaxAttempts > 0 {
		return fmt.Sprintf("%d of %d", r.Attempt, r.MaxAttempts)
	}
	return strconv.Itoa(r.Attempt)
}

// Took returns how long the run took; empty: the record does not tell.
func (r *record) Took() string {
	if r.TookMicros <= 0 {
		return ""
	}
	return (time.Duration(r.TookMicros) * time.Microsecond).String()
}

// Event returns the URL of a search for the event of the record in a topic.
func (r *record) Event(topic string) string {
	return foundURL(topic, r.ID)
}

// recordsOf returns the newest lifecycle records about the events of a topic, oldest first. It returns
// none if there is no topic of records.
func (r *readings) recordsOf(ctx context.Context, topic string) ([]record, error) {
	log := lifecycle.Topic(topic)
	if backend.CheckName(log) != nil {
		return nil, nil //nolint:nilerr // a topic with so long a name has no records
	}
	return reading(ctx, r, "lifecycle\x00"+topic, func(ctx context.Context) (records []record, err error) {
		err = r.journals.use(ctx, log, func(j *journal) error {
			err := j.step(ctx, r.browse(ctx, log))
			records = slices.Clone(j.records)
			return err
		})
		return records, err
	})
}

// waiting returns the records of those events of a group that wait for another attempt, the next one
// first. Another record about the event ends the wait. The record of the failed run is none, because it
// may come before or after the record of the retry.
func waiting(records []record, group string) (wait []record) {
	last := map[string]record{}
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
	slices.SortFunc(wait, func(a, b record) int { return a.Due().Compare(b.Due()) })
	return wait
}
