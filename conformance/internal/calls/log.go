// Package calls logs the calls to a backend, so that a report can name the calls that have not
// returned and the slowest one.
package calls

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Log records which calls to the backend under test have not returned, and which of the
// others was the slowest.
type Log struct {
	mu      sync.Mutex
	open    map[*Call]bool
	slowest *Call
	harmed  bool // the broker was harmed, so [Log.Slow] ignores calls that end from now on
}

// A Call is one call of the backend under test.
type Call struct {
	verb   string
	of     string // topic and group of the call, or ""
	items  int    // number of messages or deliveries in the arguments; for Receive, its limit
	first  string // ID of the first item, or position if the item has no ID
	ctx    context.Context
	began  time.Time
	ctxEnd time.Time // when [Log.underway] first saw that ctx was done
	Took   time.Duration
}

// String returns the verb of the call and its arguments in short.
func (c *Call) String() string {
	var s strings.Builder
	s.WriteString(c.verb)
	switch {
	case c.verb == "Receive":
		fmt.Fprintf(&s, "(at most %d)", c.items)
	case c.items > 0:
		fmt.Fprintf(&s, "(%d items, the first %.40q)", c.items, c.first)
	}
	if c.of != "" {
		fmt.Fprintf(&s, " of %.80s", c.of)
	}
	return s.String()
}

// begin records that c begins. When the call has returned, the caller calls end with its
// error. A failed call does not count as slow, because it may have waited for a broker that
// is gone.
func (cs *Log) begin(ctx context.Context, c *Call) (end func(*error)) {
	c.ctx, c.began = ctx, time.Now()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.open == nil {
		cs.open = map[*Call]bool{}
	}
	cs.open[c] = true
	return func(err *error) {
		took := time.Since(c.began)
		cs.mu.Lock()
		defer cs.mu.Unlock()
		delete(cs.open, c)
		c.Took, c.ctx = took, nil
		if c.verb != "Receive" && *err == nil && !cs.harmed && (cs.slowest == nil || took > cs.slowest.Took) {
			cs.slowest = c
		}
	}
}

// record is like begin, for a call without items.
func (cs *Log) record(ctx context.Context, verb, of string) (end func(*error)) {
	return cs.begin(ctx, &Call{verb: verb, of: of})
}

// Harm records that the broker was harmed. Calls that end from now on do not count as slow.
func (cs *Log) Harm() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.harmed = true
}

// Slow returns the slowest call that succeeded, or nil. It ignores calls of Receive,
// because they wait for messages.
func (cs *Log) Slow() *Call {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.slowest
}

// Overdue reports whether a call should have returned by now. receive is how long a Receive
// may take after its context is done. other is how long every other call may take after its
// deadline or, without a deadline, after its begin.
func (cs *Log) Overdue(receive, other time.Duration) bool {
	return slices.ContainsFunc(cs.underway(), func(c Call) bool {
		if c.verb == "Receive" {
			return c.overdue(receive)
		}
		return c.overdue(other)
	})
}

// maxCalls is the greatest number of lines that [Log.List] returns for calls.
const maxCalls = 6

// List returns a text with the calls that have not returned. Calls of the same verb and
// arguments share one line, which states how many they are and, if timed is true, how long
// the oldest has taken. A caller whose clock is not the clock of the calls passes false.
func (cs *Log) List(timed bool) string {
	all := cs.underway()
	if len(all) == 0 {
		return "No call of the backend is under way.\n"
	}
	var keys, lines []string
	alike := map[string]int{}
	for _, c := range all {
		key := fmt.Sprint(&c, c.ctxEnd.IsZero())
		if alike[key]++; alike[key] > 1 {
			continue
		}
		line := fmt.Sprintf("%v has not returned", &c)
		if timed {
			line += fmt.Sprintf(" for %v", time.Since(c.began).Round(100*time.Millisecond))
		}
		switch {
		case c.ctxEnd.IsZero():
		case !timed:
			line += "; its context is done"
		default:
			line += fmt.Sprintf("; its context was done %v ago", time.Since(c.ctxEnd).Round(100*time.Millisecond))
		}
		keys, lines = append(keys, key), append(lines, line)
	}
	for i, key := range keys {
		if n := alike[key]; n > 1 {
			lines[i] += fmt.Sprintf(" (the oldest of %d calls)", n)
		}
		lines[i] += ".\n"
	}
	if more := len(lines) - maxCalls; more > 0 {
		lines = append(lines[:maxCalls], fmt.Sprintf("and %d other calls\n", more))
	}
	return strings.Join(lines, "")
}

// underway returns copies of the calls under way, the oldest first.
func (cs *Log) underway() (all []Call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		if c.ctxEnd.IsZero() && c.ctx != nil && c.ctx.Err() != nil {
			c.ctxEnd = time.Now()
		}
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Call) int { return a.began.Compare(b.began) })
	return all
}

// overdue reports whether more than limit has passed since the call should have returned. A
// Receive should return when its context is done. Another call should return when its
// context is done, or at its deadline, or else immediately.
func (c *Call) overdue(limit time.Duration) bool {
	from := c.began
	if deadline, ok := c.deadline(); ok && deadline.After(from) {
		from = deadline
	}
	if c.verb == "Receive" || !c.ctxEnd.IsZero() {
		from = c.ctxEnd
	}
	return !from.IsZero() && time.Since(from) > limit
}

func (c *Call) deadline() (time.Time, bool) {
	if c.ctx == nil {
		return time.Time{}, false
	}
	return c.ctx.Deadline()
}
