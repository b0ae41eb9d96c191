package later

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	ahead     = 30 * time.Second // how long before they are due the messages of events are loaded
	loadAtOne = 200              // the most events whose messages are loaded ahead in one step
)

// load reads the messages of those events that have none in memory. An event without a record
// is gone: another member has published or removed it. load returns the events that are not
// gone, in the order in which they came.
func (v *View) load(ctx context.Context, events []*Event) (loaded []*Event, err error) {
	var missing []*Event
	for _, e := range events {
		if e.message == nil {
			missing = append(missing, e)
		}
	}
	slices.SortFunc(missing, func(a, b *Event) int { return strings.Compare(a.position, b.position) })
	for len(missing) > 0 {
		n := 1 // events whose records follow each other
		for n < len(missing) && n < v.page && missing[n].before == missing[n-1].position {
			n++
		}
		if err := v.loadRun(ctx, missing[:n]); err != nil {
			return nil, err
		}
		missing = missing[n:]
	}
	return slices.DeleteFunc(slices.Clone(events), func(e *Event) bool { return e.message == nil }), nil
}

func (v *View) loadRun(ctx context.Context, run []*Event) error {
	ms, err := backend.Read(ctx, v.backend, Topic(v.topic), backend.StartAfter(run[0].before), len(run))
	if err != nil && !errors.Is(err, backend.ErrGone) {
		return err
	}
	for i := range ms {
		for _, e := range run {
			if e.position == ms[i].Position {
				e.message = clone(&ms[i])
			}
		}
	}
	return nil
}

// loadAhead loads messages of pending events that are due soon, as far as there is room.
func (v *View) loadAhead(ctx context.Context, now time.Time) error {
	events := slices.DeleteFunc(v.queue.due(now.Add(ahead), loadAtOne), func(e *Event) bool { return e.message != nil })
	if len(events) == 0 || v.cached >= cacheBytes {
		return nil
	}
	loaded, err := v.load(ctx, events)
	for _, e := range loaded {
		v.cached += e.message.Size()
	}
	return err
}

// Pendings returns the pending events with their messages, in the order in which they are due.
// It reads the messages of many events at a time, and calls yield for each. If yield returns
// false, it ends.
func (v *View) Pendings(ctx context.Context, yield func(*Event, *backend.Message) bool) error {
	events := slices.SortedFunc(slices.Values(v.queue.events), compareDue)
	for some := range slices.Chunk(events, loadAtOne) {
		had := make(map[*Event]bool, len(some))
		for _, e := range some {
			had[e] = e.message != nil
		}
		loaded, err := v.load(ctx, some)
		if err != nil {
			return err
		}
		for _, e := range loaded {
			if !yield(e, e.Message(v.topic, e.Due, false)) {
				return nil
			}
		}
		for _, e := range some {
			if !had[e] {
				e.message = nil
			}
		}
	}
	return nil
}

// Entries returns the recurring entries, sorted by ID.
func (v *View) Entries() []*Entry {
	entries := make([]*Entry, 0, len(v.entries))
	for _, r := range v.entries {
		entries = append(entries, r)
	}
	slices.SortFunc(entries, func(a, b *Entry) int { return strings.Compare(a.ID, b.ID) })
	return entries
}

// Last returns when the latest event of r was due that was moved after its record was read; zero: none
// was. The log does not tell of earlier ones, because the record of a published event is removed.
func (r *Entry) Last() time.Time { return r.moved }

// Next returns when the next event of r is due; zero: never, or not known yet.
func (r *Entry) Next() time.Time {
	if len(r.pending) > 0 {
		return slices.MinFunc(r.pending, compareDue).Due
	}
	return r.first()
}
