package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// How often Follow polls a topic without new records.
const (
	minPoll = 50 * time.Millisecond
	maxPoll = time.Second
)

// Follow yields the records about events of topics, starting with the oldest one that is still
// there, and then new ones until ctx ends. It needs no group; it polls with [backend.Read], after
// 50 ms at first and down to once a second while there is nothing new. A topic that has no records
// yet may get some later. The records of one topic come in the order in which they were stored. A
// reader that falls behind misses records that have been removed.
//
// An error comes with a zero Record. Unless you leave the loop, Follow continues after a pause.
func Follow(ctx context.Context, b backend.Backend, topics ...string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		positions := make([]string, len(topics))
		for poll := minPoll; ctx.Err() == nil; {
			found := false
			for i, topic := range topics {
				n, ok := follow(ctx, b, topic, &positions[i], yield)
				if !ok {
					return
				}
				found = found || n > 0
			}
			if found {
				poll = minPoll
				continue
			}
			wait.Sleep(ctx, poll)
			poll = min(poll*2, maxPoll)
		}
	}
}

// follow yields the next records of topic. It returns how many messages it has read, and false if
// yield does.
func follow(ctx context.Context, b backend.Backend, topic string, position *string, yield func(Record, error) bool) (int, bool) {
	ms, err := backend.Read(ctx, b, Topic(topic), backend.StartAfter(*position), readSize)
	switch {
	case ctx.Err() != nil:
		return 0, false
	case errors.Is(err, backend.ErrGone):
		*position = "" // if the topic is created again, it may have smaller positions
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
