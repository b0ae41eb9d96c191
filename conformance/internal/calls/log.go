// Package calls records the calls of a backend: which are under way, and the slowest.
package calls

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Log is a log of the calls of the backend under test. It knows which calls are under
// way, and the slowest call that has returned.
type Log struct {
	mu      sync.Mutex
	open    map[*Call]bool
	slowest *Call
	harmed  bool // later calls do not count as slow, because the broker was harmed
}

// A Call is one call of the backend under test.
type Call struct {
	verb   string
	of     string // topic and group, where the call has one
	items  int    // messages, deliveries, or the most that Receive may return
	first  string // ID of the first item, or its position
	ctx    context.Context
	began  time.Time
	ctxEnd time.Time // when the watchdog first saw that ctx was done
	Took   time.Duration
}

// String names the call and its arguments in short.
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

// begin records a call. The caller calls end with the error when the call has returned. A
// call that failed does not count as slow, because it may have waited for a broker that is
// gone.
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

// record is begin for a call without items.
func (cs *Log) record(ctx context.Context, verb, of string) (end func(*error)) {
	return cs.begin(ctx, &Call{verb: verb, of: of})
}

// Harm notes that the broker was harmed: later calls do not count as slow.
func (cs *Log) Harm() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.harmed = true
}

// Slow returns the slowest call that succeeded, or nil. It leaves out Receive, which waits.
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

// maxCalls bounds the list of calls.
const maxCalls = 6

// List says which calls have not returned. It joins the same calls to one line.
func (cs *Log) List() string {
	all := cs.underway()
	if len(all) == 0 {
		return "No call of the backend is under way.\n"
	}
	var lines []string
	count := map[string]int{}
	for _, c := range all {
		line := fmt.Sprintf("%v has not returned for %v", &c, time.Since(c.began).Round(100*time.Millisecond))
		if !c.ctxEnd.IsZero() {
			line += fmt.Sprintf("; its context was done %v ago", time.Since(c.ctxEnd).Round(100*time.Millisecond))
		}
		if count[line]++; count[line] == 1 {
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		if lines[i] = line + ".\n"; count[line] > 1 {
			lines[i] = fmt.Sprintf("%s (%d calls).\n", line, count[line])
		}
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

// overdue reports whether the call is late by more than limit. A Receive is late from the
// end of its context. Another call is late from then, or else from its deadline or begin.
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
