package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// calls records which calls of the backend under test are under way, and the
// slowest that has returned.
type calls struct {
	mu      sync.Mutex
	open    map[*call]bool
	slowest *call
	harmed  bool // calls may be slow from now on: the law did harm
}

// A call is one call of the backend under test.
type call struct {
	verb   string
	of     string // topic and group, where the call has one
	items  int    // messages, deliveries, or the most that Receive may return
	first  string // ID of the first item
	ctx    context.Context
	began  time.Time
	ctxEnd time.Time // when the watchdog first saw that ctx was done
	took   time.Duration
}

// String names the call and its arguments in short.
func (c *call) String() string {
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

// begin records a call until the function that it returns is called, with the error of
// the call. One that failed does not count as slow: it may have waited for something
// that is gone.
func (cs *calls) begin(ctx context.Context, c *call) (end func(*error)) {
	c.ctx, c.began = ctx, time.Now()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.open == nil {
		cs.open = map[*call]bool{}
	}
	cs.open[c] = true
	return func(err *error) {
		took := time.Since(c.began)
		cs.mu.Lock()
		defer cs.mu.Unlock()
		delete(cs.open, c)
		c.took, c.ctx = took, nil
		if c.verb != "Receive" && *err == nil && !cs.harmed && (cs.slowest == nil || took > cs.slowest.took) {
			cs.slowest = c
		}
	}
}

// record is begin for a verb without items.
func (cs *calls) record(ctx context.Context, verb, of string) (end func(*error)) {
	return cs.begin(ctx, &call{verb: verb, of: of})
}

// harm says that calls may be slow from now on.
func (cs *calls) harm() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.harmed = true
}

// slow returns the slowest call, or nil.
func (cs *calls) slow() *call {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.slowest
}

// underway returns copies of the calls under way, the oldest first.
func (cs *calls) underway() (all []call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		if c.ctxEnd.IsZero() && c.ctx != nil && c.ctx.Err() != nil {
			c.ctxEnd = time.Now()
		}
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b call) int { return a.began.Compare(b.began) })
	return all
}

// overdue reports whether a call should have returned this long ago. A Receive may
// wait until its context is done, and any other call for as long as its deadline says.
func (c *call) overdue(limit time.Duration) bool {
	from := c.began
	if deadline, ok := c.deadline(); ok && deadline.After(from) {
		from = deadline
	}
	if c.verb == "Receive" || !c.ctxEnd.IsZero() {
		from = c.ctxEnd
	}
	return !from.IsZero() && time.Since(from) > limit
}

func (c *call) deadline() (time.Time, bool) {
	if c.ctx == nil {
		return time.Time{}, false
	}
	return c.ctx.Deadline()
}

// recorded is the backend under test with its calls recorded. The optional verbs of
// the backend are found behind it; those that laws call are recorded by verb.
type recorded struct {
	backend.Backend
	calls *calls
}

func (r *recorded) Unwrap() backend.Backend { return r.Backend }

func (r *recorded) Publish(ctx context.Context, msgs []*backend.Message) (err error) {
	c := &call{verb: "Publish", items: len(msgs)}
	if len(msgs) > 0 {
		c.of, c.first = msgs[0].Topic, msgs[0].ID
	}
	defer r.calls.begin(ctx, c)(&err)
	return r.Backend.Publish(ctx, msgs)
}

func (r *recorded) Attach(ctx context.Context, c backend.Config) (src backend.Source, err error) {
	defer r.calls.record(ctx, "Attach", c.Topic+"/"+c.Group)(&err)
	src, err = r.Backend.Attach(ctx, c)
	if err != nil || src == nil {
		return src, err
	}
	s := &recordedSource{Source: src, calls: r.calls, of: c.Topic + "/" + c.Group}
	_, delays := backend.As[backend.Delayer](src)
	_, extends := backend.As[backend.Extender](src)
	switch { // the recorded source has the verbs of its source, and no other
	case delays && extends:
		return struct {
			*recordedSource
			recordedDelay
			recordedExtend
		}{s, recordedDelay{s}, recordedExtend{s}}, nil
	case delays:
		return struct {
			*recordedSource
			recordedDelay
		}{s, recordedDelay{s}}, nil
	case extends:
		return struct {
			*recordedSource
			recordedExtend
		}{s, recordedExtend{s}}, nil
	}
	return s, nil
}

func (r *recorded) Close() (err error) {
	defer r.calls.record(nil, "Close", "the backend")(&err) //nolint:staticcheck // Close has no context
	return r.Backend.Close()
}

// recordedSource is a source with its calls recorded.
type recordedSource struct {
	backend.Source
	calls *calls
	of    string
}

func (s *recordedSource) Unwrap() backend.Source { return s.Source }

// Receive makes a short pause if the source returned nothing at once. So a source
// that never waits cannot keep a fake clock from moving on.
func (s *recordedSource) Receive(ctx context.Context, max int) ([]backend.Delivery, error) {
	c := &call{verb: "Receive", of: s.of, items: max}
	end := s.calls.begin(ctx, c)
	ds, err := s.Source.Receive(ctx, max)
	end(&err)
	if len(ds) == 0 && err == nil && c.took < time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	return ds, err
}

func (s *recordedSource) Ack(ctx context.Context, ds []*backend.Delivery) (err error) {
	defer s.settle(ctx, "Ack", ds)(&err)
	return s.Source.Ack(ctx, ds)
}

func (s *recordedSource) Close() (err error) {
	defer s.calls.record(nil, "Close", s.of)(&err) //nolint:staticcheck // Close has no context
	return s.Source.Close()
}

func (s *recordedSource) settle(ctx context.Context, verb string, ds []*backend.Delivery) (end func(*error)) {
	c := &call{verb: verb, of: s.of, items: len(ds)}
	if len(ds) > 0 {
		c.first = cmp.Or(ds[0].ID, ds[0].Position)
	}
	return s.calls.begin(ctx, c)
}

type recordedDelay struct{ s *recordedSource }

func (r recordedDelay) Delay(ctx context.Context, ds []backend.Delayed) (err error) {
	c := &call{verb: "Delay", of: r.s.of, items: len(ds)}
	if len(ds) > 0 {
		c.first = cmp.Or(ds[0].ID, ds[0].Position)
	}
	defer r.s.calls.begin(ctx, c)(&err)
	v, _ := backend.As[backend.Delayer](r.s.Source)
	return v.Delay(ctx, ds)
}

type recordedExtend struct{ s *recordedSource }

func (r recordedExtend) Extend(ctx context.Context, ds []*backend.Delivery) (err error) {
	defer r.s.settle(ctx, "Extend", ds)(&err)
	v, _ := backend.As[backend.Extender](r.s.Source)
	return v.Extend(ctx, ds)
}
