package demo

import (
	"context"
	"errors"
	"sync"
	"time"
)

// An Account records the outcome of every event in every group. The publisher, the handlers
// and the reader of dead letters report to it, not the bus and its counters.
//
// It takes a byte for each event and group, and an entry for each key and group.
type Account struct {
	moved chan struct{} // signals that an event was finished

	mu        sync.Mutex
	published int
	groups    []*ledger
}

// NewAccount returns an account for these groups.
func NewAccount(groups ...string) *Account {
	a := &Account{moved: make(chan struct{}, 1)}
	for _, name := range groups {
		a.groups = append(a.groups, &ledger{name: name, keys: map[string]*lane{}})
	}
	return a
}

// A ledger is the part of one group.
type ledger struct {
	name   string
	events []mark // by number, from 1 on
	keys   map[string]*lane
	floor  int // every event below is finished
	row    Row
}

// A mark is the state of one event in one group.
type mark uint8

const (
	handled   mark = 1 << 7 // a handler returned nil
	buried    mark = 1 << 6 // its dead letter was read
	running   mark = 1 << 5 // a handler is running
	misplaced mark = 1 << 4 // counted as out of order
	over      mark = 1 << 3 // it has failed for good
	runs      mark = 1<<3 - 1
)

// concluded has the marks of events that are done. At-least-once allows a second delivery
// of such an event; it is ignored, because order means the order of first handling.
const concluded = handled | buried | over

// A lane is the state of one key in one group: the last event done, and the event in work.
type lane struct{ last, current int }

// A Row sums up a group.
type Row struct {
	Group        string `json:"group"`
	Published    int    `json:"published"`
	Handled      int    `json:"handled"`
	Retried      int    `json:"retried"` // runs after a failed one
	DeadLettered int    `json:"dead_lettered"`
	Duplicated   int    `json:"duplicated"` // runs or dead letters of an event that was finished or running
	Lost         int    `json:"lost"`       // neither handled nor dead-lettered
	OutOfOrder   int    `json:"out_of_order"`
	Unknown      int    `json:"unknown"` // received but never published
}

// Publish notes that n more events are about to be published, and returns the number of
// the first one.
func (a *Account) Publish(n int) (first int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first = a.published + 1
	a.published += n
	for _, l := range a.groups {
		l.events = append(l.events, make([]mark, n)...)
	}
	return first
}

// An Outcome is the result of a handler's run.
type Outcome int

const (
	Done  Outcome = iota // it returns nil
	Again                // it returns an error and will be retried
	Over                 // it returns an error and will not be retried
)

// Begin notes that a handler of the group starts with an event. It returns the number of
// the run, from 1 on.
func (a *Account) Begin(group, number int, key string) (run int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.groups[group]
	m := l.mark(number)
	if m == nil {
		l.row.Unknown++
		return 1
	}
	switch {
	case *m&(handled|buried|running) != 0:
		l.row.Duplicated++
	case *m&runs > 0:
		l.row.Retried++
	}
	if *m&runs < runs {
		*m++
	}
	*m |= running
	if key != "" && *m&concluded == 0 && !l.inOrder(number, key) && *m&misplaced == 0 {
		*m |= misplaced
		l.row.OutOfOrder++
	}
	return int(*m & runs)
}

// inOrder reports whether an event may begin: no earlier event of its key is in work, and
// no later one has begun.
func (l *ledger) inOrder(number int, key string) bool {
	k := l.keys[key]
	if k == nil {
		k = &lane{}
		l.keys[key] = k
	}
	ok := (k.current == 0 || k.current == number) && number >= k.last
	k.current = number
	return ok
}

// End notes the outcome of a handler's run.
func (a *Account) End(group, number int, key string, o Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.groups[group]
	m := l.mark(number)
	if m == nil {
		return
	}
	*m &^= running
	if o == Over {
		*m |= over
	}
	if k := l.keys[key]; k != nil && o != Again {
		k.last = max(k.last, number)
		if k.current == number {
			k.current = 0
		}
	}
	if o == Done && *m&handled == 0 {
		*m |= handled
		l.row.Handled++
		if *m&buried != 0 { // handled after its dead letter was read
			l.row.DeadLettered--
			l.row.Duplicated++
		}
		a.finish(l)
	}
}

// Bury notes that the dead letter of an event was read.
func (a *Account) Bury(group, number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.groups[group]
	m := l.mark(number)
	switch {
	case m == nil:
		l.row.Unknown++
	case *m&(handled|buried) != 0:
		l.row.Duplicated++
	default:
		*m |= buried
		l.row.DeadLettered++
		a.finish(l)
	}
}

func (l *ledger) mark(number int) *mark {
	if number < 1 || number > len(l.events) {
		return nil
	}
	return &l.events[number-1]
}

func (a *Account) finish(l *ledger) {
	for l.floor < len(l.events) && l.events[l.floor]&(handled|buried) != 0 {
		l.floor++
	}
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

// ErrStalled means that events are open, but none was finished for a while.
var ErrStalled = errors.New("nothing is handled any more")

// Wait waits until, in every group, the oldest unfinished event is among the last n
// published. With n = 0 it waits until every event is finished. It has one caller at a
// time.
func (a *Account) Wait(ctx context.Context, n int, stall time.Duration) error {
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for a.behind() > n {
		select {
		case <-a.moved:
			timer.Reset(stall)
		case <-timer.C:
			return ErrStalled
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// behind returns how many events ago the oldest unfinished one was published.
func (a *Account) behind() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := 0
	for _, l := range a.groups {
		most = max(most, len(l.events)-l.floor)
	}
	return most
}

// Rows returns a row for each group, in the order given to NewAccount.
func (a *Account) Rows() []Row {
	a.mu.Lock()
	defer a.mu.Unlock()
	rows := make([]Row, len(a.groups))
	for i, l := range a.groups {
		r := l.row
		r.Group, r.Published = l.name, a.published
		r.Lost = r.Published - r.Handled - r.DeadLettered
		rows[i] = r
	}
	return rows
}
