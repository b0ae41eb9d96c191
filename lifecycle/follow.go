package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// The times between two looks of Follow at a topic without new records.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// Follow yields the records about the events of topics, from the oldest one that is kept, and
// then new ones until ctx ends. It needs no group, and reads by [backend.Read]. It looks for
// new records after 50 ms, and ever less often while there are none, down to once a second. A
// topic without records may get some later. The records of one topic come in the order in
// which they were stored. A reader that falls behind misses records that were removed.
//
// An error comes with a zero Record. Follow then goes on after a pause, unless the loop ends.
func Follow(ctx context.Context, b backend.Backend, topics ...string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		positions := make([]string, len(topics))
		for wait := firstLook; ctx.Err() == nil; {
			found := false
			for i, topic := range topics {
				n, ok := follow(ctx, b, topic, &positions[i], yield)
				if !ok {
					return
				}
				found = found || n > 0
			}
			if found {
				wait = firstLook
				continue
			}
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
			wait = min(wait*2, lastLook)
		}
	}
}

// follow yields the next records of topic, and returns the number of messages that it has
// read. It returns false if yield does.
func follow(ctx context.Context, b backend.Backend, topic string, position *string, yield func(Record, error) bool) (int, bool) {
	ms, err := backend.Read(ctx, b, Topic(topic), backend.StartAfter(*position), readSize)
	switch {
	case ctx.Err() != nil:
		return 0, false
	case errors.Is(err, backend.ErrGone):
		*position = "" // a topic that is made anew may have smaller positions
		return 0, true
	case err != nil:
		return 0, yield(Record{}, fmt.Errorf("lifecycle: follow %s: %w", topic, err))
	}
	for i := range ms {
		*position = strings.Clone(ms[i].Position) // otherwise it would keep the whole read in memory
		r, ok, err := Decode(&ms[i])
		if ok && err != nil {
			r = Record{}
		}
		if ok && !yield(r, err) {
			return 0, false
		}
	}
	return len(ms), true
}
